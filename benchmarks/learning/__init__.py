"""Learning curves, scores and transfer of the default configuration on every task."""
