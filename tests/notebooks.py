"""Executes the notebooks of the documentation, and writes them with their outputs: ``make notebooks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
TIMEOUT_S = 300
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def executed(file: Path, folder: Path) -> Any:
    """Run all cells in a folder, in a kernel of their own; an exception in one is raised."""
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    # Versions and times of this machine are nobody's business.
    notebook.metadata = nbformat.from_dict(KERNEL)
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def texts(notebook: Any) -> list[list[str]]:
    """The texts that each cell printed or showed, pictures left out."""
    return [
        [output.get("text") or output["data"].get("text/plain", "") for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


if __name__ == "__main__":
    for each in NOTEBOOKS:
        nbformat.write(executed(each, each.parent), each)
        print(f"{each.name}: {each.stat().st_size} bytes")
