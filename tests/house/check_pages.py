"""Checks the pages of a source tree: links, anchors, paths, lengths, the index, the version and, with a program, names.

check_pages.py TREE [PROGRAM] prints each broken place and exits with 1 if there is one.
"""
import os
import re
import subprocess
import sys

MAX_LINES = 300
LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)\)|<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"")
MENTION = re.compile(r"\bdocs/[A-Za-z0-9_/.-]+\.(?:md|svg|png)\b")
# Suffixes after which `model.npz` or `train.h5` is the name of a file, not a key.
FILES = set("bin cpp csv de en fr gz h5 hpp html journal json jsonl log lsf lua md model npz partial pbs pem py safetensors sbatch "
            "sh so spm toml txt vocab yml".split())


def pages(tree):
    """Paths of all pages below the tree, relative to it."""
    found = [name for name in sorted(os.listdir(tree)) if name.endswith(".md")]
    for place in ("docs", "apps"):
        for folder, _, names in os.walk(os.path.join(tree, place)):
            found += [os.path.relpath(os.path.join(folder, name), tree) for name in sorted(names) if name.endswith(".md")]
    return found


def without_code(text):
    """The text with fenced and indented code and code spans blanked; lines stay where they are."""
    lines, fence, after_blank = [], False, True
    for line in text.split("\n"):
        if line.startswith("```"):
            fence, line = not fence, ""
        code = fence or (after_blank and line.startswith("    ") and not re.match(r"\s*(- |\d+\. )", line))
        if line.strip() and not code:
            after_blank = False
        elif not line.strip():
            after_blank = True
        lines.append("" if code else line)
    return re.sub(r"`[^`\n]*`", lambda span: " " * len(span.group()), "\n".join(lines))


def anchors(text):
    """The anchors that GitHub makes of the headings of a page."""
    found, fence = set(), False
    for line in text.split("\n"):
        fence ^= line.startswith("```")
        heading = None if fence else re.match(r"#+ (.*)", line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).strip().lower()
            base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            anchor, count = base, 0
            while anchor in found:
                count += 1
                anchor = f"{base}-{count}"
            found.add(anchor)
    return found


def check_links(tree, texts, report):
    """Each relative link leads to a file, and to an anchor where it names one; the index leads to each page of docs."""
    reached = {}
    for page, text in texts.items():
        plain = without_code(text)
        for match in LINK.finditer(plain):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            line = plain.count("\n", 0, match.start()) + 1
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            reached.setdefault(page, set()).add(full)
            if not os.path.exists(os.path.join(tree, full)):
                report(f"{page}:{line}: the link {target} leads to no file")
            elif anchor and full in texts and anchor not in anchors(texts[full]):
                report(f"{page}:{line}: {full} has no heading #{anchor}")
    for page in texts:
        if page.startswith("docs/") and page != "docs/README.md" and page not in reached.get("docs/README.md", set()):
            report(f"{page}: docs/README.md has no link to this page")


def check_mentions(tree, report):
    """A path of a page that a source file, a script or a page names exists."""
    for place in ("apps", "bench", "cmake", "core", "dist", "docs", "io", "kernels", "packaging", "scripts", "tests", *pages(tree)):
        top = os.path.join(tree, place)
        files = [top] if os.path.isfile(top) else [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
        for file in sorted(files):
            if os.path.basename(file) in ("check_pages.py", "prove-pages", "prove-rules"):
                continue
            try:
                text = open(file, encoding="utf-8").read()
            except (UnicodeDecodeError, OSError):
                continue
            for match in MENTION.finditer(text):
                if not os.path.exists(os.path.join(tree, match.group())):
                    line = text.count("\n", 0, match.start()) + 1
                    report(f"{os.path.relpath(file, tree)}:{line}: {match.group()} does not exist")


def check_version(tree, report):
    """The version and the ABI number of the header are those of the files that name them for people and catalogues."""
    header = os.path.join(tree, "core/include/heddle/core/base/compiled_abi_tag.hpp")
    if not os.path.exists(header):
        return
    text = open(header, encoding="utf-8").read()
    version = re.search(r'heddle_version = "([0-9.]+)"', text).group(1)
    abi = re.search(r"abi_number = ([0-9]+)", text).group(1)
    for file, words in (("CITATION.cff", f"\nversion: {version}\n"), ("codemeta.json", f'"version": "{version}"'),
                        ("CHANGELOG.md", f"\n## {version} "), ("CHANGELOG.md", f"ABI number {abi}.")):
        path = os.path.join(tree, file)
        if not os.path.exists(path) or words not in open(path, encoding="utf-8").read():
            report(f"{file}: does not have \"{words.strip()}\", as the header of the version has it")


def output(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def program_names(program):
    """The options of each command, and all keys of the configuration, as the program prints them."""
    commands = {}
    for name in re.findall(r"^  ([a-z][a-z-]+) +\S", output(program, "--help"), re.M):
        commands[name] = set(re.findall(r"--([a-z][a-z0-9-]*)", output(program, name, "--help")))
    if "run" in commands:
        commands["run"] |= commands.get("train", set())
    keys, section = set(), ""
    for line in output(program, "config", "--defaults").split("\n"):
        header = re.match(r"\[([a-z_]+)\]", line)
        key = re.match(r"([a-z_0-9]+) =", line)
        if header:
            section = header.group(1)
            keys.add(section)
        elif key:
            keys.add(f"{section}.{key.group(1)}")
    rules = output(program, "kernels").split("\nUpdate rules")[-1].split("\nMetrics")[0]  # and schedules
    keys |= {f"optimizer.{option}" for option in re.findall(r"^ {8}([a-z0-9_]+) ", rules, re.M)}
    return commands, keys


def check_names(texts, commands, keys, report):
    """Commands, their options and keys in code spans and examples exist."""
    sections = "|".join(sorted(name for name in keys if "." not in name))
    key_span = re.compile(rf"`((?:{sections})\.([a-z_0-9]+))(?:\s?=[^`]*)?`|--set '?((?:{sections})\.([a-z_0-9]+))=")
    for page, text in texts.items():
        joined = re.sub(r"\\\n\s*", lambda cut: " " * len(cut.group()), text)
        for match in re.finditer(r"\bheddle ([a-z][a-z-]+)((?: [^\n`|#;&]*)?)", joined):
            line = text.count("\n", 0, match.start()) + 1
            command, rest = match.group(1), match.group(2).split(" -- ")[0]
            options = re.findall(r"(?<= )--([a-z][a-z0-9-]*)", rest)
            if not options:
                continue
            if command not in commands:
                report(f"{page}:{line}: there is no command heddle {command}")
                continue
            for option in options:
                if option not in commands[command]:
                    report(f"{page}:{line}: heddle {command} has no option --{option}")
        for match in key_span.finditer(text):
            key, last = (match.group(1), match.group(2)) if match.group(1) else (match.group(3), match.group(4))
            if key not in keys and last not in FILES:
                report(f"{page}:{text.count(chr(10), 0, match.start()) + 1}: there is no key {key}")
        if re.search(r"coming-from-[a-z-]+\.md$", page):
            every = set().union(*commands.values())
            for number, row in enumerate(text.split("\n"), 1):
                cells = re.split(r"(?<!\\)\|", row)
                for option in re.findall(r"`--([a-z][a-z0-9-]*)[^`]*`", cells[2]) if len(cells) > 3 else []:
                    if option not in every:
                        report(f"{page}:{number}: no command has an option --{option}")


def main():
    tree, program = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    texts = {page: open(os.path.join(tree, page), encoding="utf-8").read() for page in pages(tree)}
    broken = []
    check_links(tree, texts, broken.append)
    check_mentions(tree, broken.append)
    check_version(tree, broken.append)
    for page, text in texts.items():
        if text.count("\n") > MAX_LINES and page != "CHANGELOG.md":
            broken.append(f"{page}: {text.count(chr(10))} lines; a page of more than {MAX_LINES} is two")
    if program:
        check_names(texts, *program_names(program), broken.append)
    print("\n".join(broken) if broken else f"{len(texts)} pages")
    sys.exit(1 if broken else 0)


main()
