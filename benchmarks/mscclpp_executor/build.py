"""Build MSCCL++'s core, without InfiniBand and NUMA, and the functions of `shim.cc` as one shared library."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VERSION = "0.9.0"
SHIM = Path(__file__).with_name("shim.cc")
LEFT_OUT = ("numa.cc", "ibverbs_wrapper.cc")
"""Sources that need libnuma and InfiniBand; `shim.cc` stands in for the first, and nothing calls the second."""
FLAGS = ("-std=c++17", "-O2", "-w", "-DMSCCLPP_USE_CUDA")


class BuildError(Exception):
    """Something that the library is built from is missing, is of another version, or does not compile."""


def build(mscclpp: Path, json: Path | None, folder: Path) -> Path:
    """Build the library from a checkout of MSCCL++, unless this folder has one that is newer than its sources."""
    check_version(mscclpp)
    core = mscclpp / "src" / "core"
    includes = [folder / "include", mscclpp / "include", core / "include", find_json(mscclpp, json)]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = find_program("install the CUDA toolkit, or set CUDA_HOME", f"{home}/bin/nvcc", "nvcc")
    host = find_program("install it, or set CXX", os.environ.get("CXX", "g++"))
    cuda = Path(nvcc).resolve().parents[1] / "include"
    found = [path for path in core.rglob("*.c*") if path.suffix in (".cc", ".cpp", ".cu") and path.name not in LEFT_OUT]
    sources = [SHIM, *sorted(found)]
    library = folder / "libmscclpp_executor.so"
    if library.exists() and library.stat().st_mtime > max(path.stat().st_mtime for path in [Path(__file__), *sources]):
        return library
    _write_version(mscclpp, folder)
    flags = [*FLAGS, *(f"-I{path}" for path in includes)]
    compilers = {".cu": [nvcc, *flags, "-arch=native", "-Xcompiler", "-fPIC"]}
    compilers[".cc"] = compilers[".cpp"] = [host, *flags, "-fPIC", f"-isystem{cuda}", f"-isystem{cuda / 'cccl'}"]
    objects = [str(folder / f"{path.name}.o") for path in sources]
    calls = [[*compilers[path.suffix], "-c", str(path), "-o", end] for path, end in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(_call, calls))
    _call([nvcc, "-shared", "-o", str(library), *objects, "-ldl", "-lrt", "-lpthread"])
    return library


def check_version(mscclpp: Path) -> None:
    """Raise `BuildError` unless this is a checkout of the version that the judge was written for."""
    if not (mscclpp / "src" / "core" / "executor").is_dir() or not (mscclpp / "VERSION").is_file():
        raise BuildError(f"{mscclpp} is not a checkout of MSCCL++: it has no VERSION or no src/core/executor")
    if (version := (mscclpp / "VERSION").read_text(encoding="utf-8").strip()) != VERSION:
        raise BuildError(f"{mscclpp} has version {version}; expected {VERSION}: git checkout v{VERSION}")


def find_json(mscclpp: Path, json: Path | None) -> Path:
    """Find the folder that has nlohmann/json.hpp: as given, where MSCCL++'s own build puts it, or the system's."""
    fetched = mscclpp / "build" / "_deps" / "json-src"
    folders = [json] if json else [fetched / "single_include", fetched / "include", Path("/usr/include")]
    for folder in folders:
        if (folder / "nlohmann" / "json.hpp").is_file():
            return folder
    raise BuildError(f"there is no nlohmann/json.hpp in {' or '.join(map(str, folders))}: name its folder with --json")


def find_program(hint: str, *names: str) -> str:
    """Find the first of these programs that is there."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise BuildError(f"there is no {names[-1]}: {hint}")


def _write_version(mscclpp: Path, folder: Path) -> None:
    """Write version.hpp as MSCCL++'s CMake does."""
    text = (mscclpp / "include" / "mscclpp" / "version.hpp.in").read_text(encoding="utf-8")
    names = ("MSCCLPP_MAJOR", "MSCCLPP_MINOR", "MSCCLPP_PATCH", "GIT_HASH")
    for name, value in zip(names, (*VERSION.split("."), f"v{VERSION}"), strict=True):
        text = text.replace(f"@{name}@", value)
    header = folder / "include" / "mscclpp" / "version.hpp"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(text, encoding="utf-8")


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).splitlines()[-20:])
        raise BuildError(f"this command failed:\n{' '.join(command)}\n{last}")
