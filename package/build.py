#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""build.py BUILD INTO [PACKAGE...]: packages of an installed build, for ./dev package and its test.

BUILD is a build folder in which the target `product` was built; INTO gets

    weir_VERSION_amd64.deb             programs, manual pages, units, completions, configuration
    libweir0_VERSION_amd64.deb         the library for C programs
    libweir-dev_VERSION_amd64.deb      headers, archives, files for CMake and pkg-config
    weir-doc_VERSION_all.deb           documents, dashboard, alerts, examples
    weir-lustre-VERSION-x86_64.tar.gz  the static program for Lustre servers, its unit and manual
    weir-lustre-VERSION-1.x86_64.rpm   the same, for Enterprise Linux
    weir-VERSION-oci.tar               an image whose entry point is weir serve (image.py)

PACKAGE names a .deb, `weir-lustre` or `image`; without it, all of them are built.

The same sources give the same bytes: times are SOURCE_DATE_EPOCH or the time of the last commit,
and owners are root.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import image

ROOT = pathlib.Path(__file__).resolve().parents[1]
HERE = ROOT / "package"
MAINTAINER = "The authors of Weir <weir@example.org>"
# The package of each file: the first pattern that matches its path below /usr. Other files are in
# weir.
PARTS = (("libweir-dev", r"include/|lib/(lib\w+\.a|libweir\.so$|cmake/|pkgconfig/)"),
         ("libweir0", r"lib/libweir\.so"),
         ("weir-doc", r"share/doc/"))
ABOUT = {
    "weir": ("I/O flow control for shared storage",
             "Weir classifies every request that reaches a storage server, queues it\n"
             " with its own class, paces it with token buckets, and lends idle bandwidth\n"
             " to any job that can use it. It exports files, block devices and memory\n"
             " over NBD, limits NFS servers as a gateway, and drives the TBF rules of\n"
             " Lustre servers."),
    "libweir0": ("I/O flow control for shared storage - library for C",
                 "The scheduler of Weir with its rules and shares, and the device limiter, for\n"
                 " servers that are written in C: weir.h in libweir-dev."),
    "libweir-dev": ("I/O flow control for shared storage - library",
                    "Headers and static archives of Weir: token buckets, the scheduler, and\n"
                    " the device limiter for other servers, in C++ and C; weir-doc has\n"
                    " embedding.md and extending.md."),
    "weir-doc": ("I/O flow control for shared storage - documents",
                 "Design pages, a dashboard for Grafana, alert rules for Prometheus, and\n"
                 " examples."),
}


def run(*command, **options):
    return subprocess.run([str(one) for one in command], check=True, text=True,
                          stdout=subprocess.PIPE, **options).stdout


def version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(weir VERSION ([\d.]+)", text)[1]


def epoch():
    """The time of all files in a package."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip() or 0)


def copy(source, to, mode=0o644):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)
    to.chmod(mode)


def compress(path):
    """As Debian requires: without a time and a name inside."""
    with open(f"{path}.gz", "wb") as file:
        file.write(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


def install(build, tree):
    run("cmake", "--install", build, "--prefix", "/usr", env={**os.environ, "DESTDIR": str(tree)})
    for unit in sorted((ROOT / "docs/systemd").glob("*.service")):
        copy(unit, tree / "usr/lib/systemd/system" / unit.name)
    copy(HERE / "sysusers.conf", tree / "usr/lib/sysusers.d/weir.conf")
    copy(HERE / "tmpfiles.conf", tree / "usr/lib/tmpfiles.d/weir.conf")
    copy(HERE / "etc/weir.conf", tree / "etc/weir/weir.conf")
    share = tree / "usr/share"
    copy(HERE / "completions/weir.bash", share / "bash-completion/completions/weir")
    copy(HERE / "completions/_weir", share / "zsh/vendor-completions/_weir")
    copy(HERE / "completions/weir.fish", share / "fish/vendor_completions.d/weir.fish")
    docs = share / "doc/weir-doc"
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".md", ".json", ".yml", ".example"):
            copy(path, docs / path.relative_to(ROOT / "docs"))
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_file():
            copy(path, docs / "examples" / path.relative_to(ROOT / "examples"),
                 0o755 if os.access(path, os.X_OK) else 0o644)


def split(tree, into):
    """One folder for each package."""
    for path in sorted(tree.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(tree)
        below = str(name).removeprefix("usr/")
        package = next((part for part, pattern in PARTS if re.match(pattern, below)), "weir")
        to = into / package / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, to)
    example = into / "weir-doc/usr/share/doc/weir/weir.conf.example"  # for users of the server
    if example.exists():
        to = into / "weir/usr/share/doc/weir/examples/weir.conf"
        to.parent.mkdir(parents=True)
        shutil.move(example, to)


def finish(package, tree):
    """Adds the files that every package has, in Debian's form."""
    docs = tree / "usr/share/doc" / package
    copy(HERE / "debian/copyright", docs / "copyright")
    changelog = docs / "changelog.Debian"
    stamp = run("date", "-u", "-R", "-d", f"@{epoch()}").strip()
    changelog.write_text(f"weir ({version()}) unstable; urgency=medium\n\n"
                         f"  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {stamp}\n",
                         encoding="utf-8")
    compress(changelog)
    for page in list((tree / "usr/share/man").rglob("*.[1-9]")):
        compress(page)
    for program in [*tree.glob("usr/bin/*"), *tree.glob("usr/libexec/weir/*")]:
        run("strip", "--remove-section=.comment", "--remove-section=.note", program)
    for library in tree.glob("usr/lib/*.so.*.*"):
        run("strip", "--strip-unneeded", "--remove-section=.comment", library)
        library.chmod(0o644)
    for archive in tree.glob("usr/lib/*.a"):
        run("strip", "--strip-debug", "--enable-deterministic-archives", archive)


def depends(package, tree):
    if package == "libweir-dev":
        return (f"libweir0 (= {version()}), libfmt-dev, libexpected-dev, libabsl-dev, "
                "libboost-dev, liburing-dev, libgnutls28-dev, libgrpc++-dev, libprotobuf-dev")
    if package == "weir-doc":
        return ""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "debian").mkdir()
        (pathlib.Path(folder) / "debian/control").write_text("Source: weir\n", encoding="utf-8")
        programs = [*tree.glob("usr/bin/*"), *tree.glob("usr/libexec/weir/*"),
                    *tree.glob("usr/lib/*.so.*.*")]
        found = run("dpkg-shlibdeps", "-O", "--ignore-missing-info",
                    *[f"-e{one}" for one in programs], cwd=folder, stderr=subprocess.DEVNULL)
    return found.strip().removeprefix("shlibs:Depends=") + (", passwd" if package == "weir" else "")


def control(package, tree):
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    short, long = ABOUT[package]
    lines = {"Package": package, "Version": version(), "Source": "weir",
             "Section": {"weir": "admin", "libweir0": "libs", "libweir-dev": "libdevel",
                         "weir-doc": "doc"}[package],
             "Priority": "optional", "Architecture": "all" if package == "weir-doc" else "amd64",
             "Maintainer": MAINTAINER, "Installed-Size": str(size),
             "Depends": depends(package, tree), "Description": f"{short}\n {long}"}
    if package == "weir":
        lines["Recommends"] = "systemd"
        lines["Suggests"] = "weir-doc, nbdkit, libnbd-bin"
        del lines["Source"]
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


def build_deb(package, tree, into):
    finish(package, tree)
    meta = tree / "DEBIAN"
    meta.mkdir()
    (meta / "control").write_text(control(package, tree), encoding="utf-8")
    files = sorted(one for one in tree.rglob("*")
                   if one.is_file() and not one.is_symlink() and meta not in one.parents)
    sums = run("md5sum", *[one.relative_to(tree) for one in files], cwd=tree)
    (meta / "md5sums").write_text(sums, encoding="utf-8")
    if package == "libweir0":
        (meta / "shlibs").write_text(f"libweir 0 libweir0 (>= {version()})\n", encoding="utf-8")
        (meta / "triggers").write_text("activate-noawait ldconfig\n", encoding="utf-8")
    if package == "weir":
        (meta / "conffiles").write_text("/etc/weir/weir.conf\n", encoding="utf-8")
        for script in ("postinst", "prerm", "postrm"):
            copy(HERE / "debian" / script, meta / script, 0o755)
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)
    arch = "all" if package == "weir-doc" else "amd64"
    to = into / f"{package}_{version()}_{arch}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, to,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())})
    return to


# ---- weir-lustre: the static program ----


def lustre_files(build, into):
    """Its files, in one folder."""
    into.mkdir(parents=True)
    copy(build / "weir-lustre", into / "weir-lustre", 0o755)
    run("strip", "--remove-section=.comment", into / "weir-lustre")
    copy(build / "docs/man/weir-lustre.1", into / "weir-lustre.1")
    copy(ROOT / "LICENSE", into / "LICENSE")
    copy(ROOT / "docs/runbook-lustre.md", into / "runbook-lustre.md")
    unit = (ROOT / "docs/systemd/weir-lustre.service").read_text(encoding="utf-8")
    (into / "weir-lustre.service").write_text(
        unit.replace("/usr/bin/weir lustre", "/usr/bin/weir-lustre"), encoding="utf-8")


def build_tar(folder, to):
    def owned_by_root(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch()
        return entry

    with open(to, "wb") as file:
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                tar.add(folder, folder.name, recursive=False, filter=owned_by_root)
                for path in sorted(folder.iterdir()):
                    tar.add(path, f"{folder.name}/{path.name}", filter=owned_by_root)
    return to


def build_rpm(folder, into):
    """The time and host of the build are not part of it, so that it is reproducible."""
    fixed = {"_topdir": folder.parent / "rpm", "_sourcedir": folder, "_rpmdir": into,
             "_build_name_fmt": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
             "_buildhost": "weir", "_build_id_links": "none", "_binary_payload": "w6.xzdio",
             "use_source_date_epoch_as_buildtime": 1, "clamp_mtime_to_source_date_epoch": 1,
             "weir_version": version(),
             "weir_date": run("date", "-u", "-d", f"@{epoch()}", "+%a %b %d %Y").strip()}
    defines = [word for name, value in fixed.items() for word in ("--define", f"{name} {value}")]
    run("rpmbuild", "-bb", "--quiet", "--target", "x86_64-linux", *defines,
        HERE / "rpm/weir-lustre.spec",
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch()), "LC_ALL": "C"},
        stderr=subprocess.PIPE)
    return into / f"weir-lustre-{version()}-1.x86_64.rpm"


def build_lustre(build, into, folder):
    files = folder / f"weir-lustre-{version()}"
    lustre_files(build, files)
    return [build_tar(files, into / f"{files.name}-x86_64.tar.gz"), build_rpm(files, into)]


def main(build, into, *wanted):
    build, into = pathlib.Path(build).resolve(), pathlib.Path(into).resolve()
    wanted = wanted or (*ABOUT, "weir-lustre", "image")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        install(build, folder / "tree")
        split(folder / "tree", folder / "parts")
        debs = {package: build_deb(package, folder / "parts" / package, into)
                for package in ABOUT if package in wanted}
        built = list(debs.values())
        if "weir-lustre" in wanted:
            built += build_lustre(build, into, folder)
        if "image" in wanted:
            base = image.base(debs["weir"], into / "base")
            built.append(image.build(debs["weir"], base, into / f"weir-{version()}-oci.tar",
                                     epoch(), version()))
    print(*built, sep="\n")


if __name__ == "__main__":
    os.umask(0o022)
    main(*sys.argv[1:])
