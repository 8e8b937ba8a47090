"""The encoder inside other people's libraries; one module per library, imported only when used.

`sb3` (with sb3-contrib), `skrl`, `torchrl`, `tianshou` and `rllib`. What they share
stands beside them: statistics of the running normalisation, one pass for actor and critic, nested
observation spaces, masks as boxes.
"""
