#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the README's picture of the page that `lockstep compare --html` writes: compares strategies, and lets Chromium draw the beginning.

usage: page.py LOCKSTEP FILE.png [OPTION ...]      options of compare in place of these
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

README = ("--model=cnn", "--dataset=fashion-mnist", "--strategies=ring,central-storage,parameter-server", "--replicas=2", "--steps=100")
WIDTH, HEIGHT = 1200, 1120


def cut(picture):
    """Leaves the first HEIGHT rows: a window shows some less than it is high."""
    with open(picture, "rb") as file:
        content = file.read()
    chunks, at = [], 8
    while at < len(content):
        size, kind = struct.unpack(">I4s", content[at:at + 8])
        chunks.append((kind, content[at + 8:at + 8 + size]))
        at += size + 12
    head = chunks[0][1]
    channels = {2: 3, 6: 4}[head[9]]
    rows = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))[:HEIGHT * (1 + channels * WIDTH)]
    with open(picture, "wb") as file:
        file.write(content[:8])
        for kind, data in ((b"IHDR", struct.pack(">2I", WIDTH, HEIGHT) + head[8:]), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def main(lockstep, picture, *options):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("page.py: there is no Chromium (package chromium), which draws the page")
    with tempfile.TemporaryDirectory(prefix="lockstep-picture-") as folder:
        page = os.path.join(folder, "compare.html")
        subprocess.run([lockstep, "compare", *(options or README), "--quiet", "--html=" + page], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                        "--blink-settings=preferredColorScheme=1", f"--window-size={WIDTH},{HEIGHT + 200}", "--user-data-dir=" + folder,
                        "--screenshot=" + os.path.abspath(picture), "file://" + page], check=True, timeout=120, stderr=subprocess.DEVNULL)
        cut(picture)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
