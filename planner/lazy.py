"""Names of a package that are loaded when first used, so that importing the package costs next to nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `homes` gives, by module of it, the names that live there.

    `__version__` is that of the installed distribution: looking it up takes longer than importing the
    package.
    """
    places = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("databound")
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *places})
