"""Names of a package that are loaded when first used, so that importing the package costs next to nothing.

A package binds these two to its name and to its `homes`: by module, the names that live there.

    __getattr__, __dir__ = partial(load, __name__, homes), partial(names, __name__, homes)
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(package: str, homes: Mapping[str, str], name: str) -> Any:
    """A name of a package. `__version__` is that of the installed distribution: looking it up takes longer
    than importing the package.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("databound")
    for module, there in homes.items():
        if name in there.split():
            value = getattr(import_module(f"{package}.{module}"), name)
            setattr(sys.modules[package], name, value)
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def names(package: str, homes: Mapping[str, str]) -> list[str]:
    return sorted({*vars(sys.modules[package]), *" ".join(homes.values()).split()})
