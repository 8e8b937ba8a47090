"""Find the packages; everything else stands in pyproject.toml.

The folders ``envs`` and ``agents`` are installed as ``entity_encoder.envs`` and
``entity_encoder.agents``. Automatic discovery sees them only through the links inside
``entity_encoder``, and a checkout or an sdist may lack links, so they are named here.
"""

from setuptools import find_packages, setup

FOLDERS = {"entity_encoder": "entity_encoder"} | {
    f"entity_encoder.{name}": name for name in ("agents", "envs")
}


def packages() -> list[str]:
    """Return the import name of every package on disk."""
    found = set()
    for package, folder in FOLDERS.items():
        found.add(package)
        found.update(f"{package}.{name}" for name in find_packages(folder))
    return sorted(found)


setup(packages=packages())
