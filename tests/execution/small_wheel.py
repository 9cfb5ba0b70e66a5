"""A package of a few lines as a wheel, so that pip has something to install without any index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, content: str, version: str = "1.0") -> str:
    """Writes the wheel of a package with one module; returns the requirements that get it from there."""
    folder.mkdir(parents=True, exist_ok=True)
    described = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": content,
        f"{described}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{described}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{described}/RECORD"])
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in {**files, f"{described}/RECORD": record}.items():
            wheel.writestr(path, text)
    return f"{name} @ {file.as_uri()}\n"
