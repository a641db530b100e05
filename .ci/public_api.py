#!/usr/bin/env python3
"""public_api.py DOC: prints the public API of procession, read from the pages that `cargo doc` wrote to the folder DOC.

`.ci/run` compares the result with tests/public_api.txt. To accept a change of the API:

    cargo doc --no-deps --all-features && python3 .ci/public_api.py target/doc >tests/public_api.txt

This program reads rustdoc's HTML, because the stable compiler can write HTML, and because rustdoc resolves re-exports,
macros and features. The HTML shows each signature as users read it. rustdoc's JSON needs a nightly compiler, and the format
of the JSON changes with the compiler. A parser of the sources would have to resolve re-exports and macros itself. If a new
compiler spells a signature in another way, write the list again, in a separate commit.

The list has one block per item. A block contains the kind and the path of the item, its declaration, its methods, and the
traits that it implements. Of the auto traits, only `Send` and `Sync` are listed. Methods and traits are sorted, because their
order in the sources is not part of the API. The list does not contain methods of `Deref` targets, blanket implementations,
and `#[doc(hidden)]` items.
"""
import html
import pathlib
import re
import sys

SECTION = re.compile(r'<section id="([^"]*)" class="([^"]*)">(.*?)</section>', re.S)
SIGNATURE = re.compile(r'<h[34] class="code-header">(.*?)</h[34]>', re.S)
DECLARATION = re.compile(r'<pre class="rust item-decl"><code>(.*?)</code></pre>', re.S)


def plain(markup):
    """Returns the text of the markup, without tags and notes."""
    markup = re.sub(r'<a href="#" class="tooltip".*?</a>', "", markup, flags=re.S)
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def text(markup):
    """Returns the text of the markup, without tags, on one line."""
    markup = re.sub(r"<(?:br|div|/div)[^>]*>", " ", markup)
    line = " ".join(plain(markup).split()).rstrip(",")
    # rustdoc puts each parameter of a long signature on its own line.
    return line.replace("( ", "(").replace(", )", ")")


def declaration(page):
    """Returns the lines of the declaration, without attributes, comments and blank lines."""
    found = DECLARATION.search(page)
    lines = plain(found.group(1) if found else "").split("\n")
    return ["    " + line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith(("#[", "//"))]


def parts(page):
    """Yields the markup of each part of the page, with the id of its heading. Before the first heading, the id is empty."""
    pieces = re.split(r'<h2 id="([^"]*)"', page)
    yield "", pieces[0]
    yield from zip(pieces[1::2], pieces[2::2])


def members(page):
    """Returns two lists of lines: methods and implementations of the item of the page, and implementors of a trait."""
    methods, traits, implementors = [], {}, []
    for heading, part in parts(page):
        if heading.startswith(("deref-methods", "blanket-implementations")):
            continue
        within = ""
        for name, kinds, body in SECTION.findall(part):
            signature = SIGNATURE.search(body)
            if not signature:
                continue
            kinds, line = kinds.split(), text(signature.group(1))
            if "impl" in kinds:
                within = line
                if heading.startswith("synthetic") and not re.match(r"impl-!?(Send|Sync)-for", html.unescape(name)):
                    continue
                if heading in ("implementors", "foreign-impls", "synthetic-implementors"):
                    implementors.append(line)
                elif " for " in line and "StructuralPartialEq" not in line:
                    traits[line] = []
            elif "trait-impl" in kinds:
                # The trait declares the methods. The implementation chooses only the associated types.
                if "associatedtype" in kinds and within in traits:
                    traits[within].append("        " + line)
            elif heading == "implementations" and ("method" in kinds or "associatedconstant" in kinds):
                # The bounds of an `impl` block apply to all methods of the block.
                bounds = within.partition(" where ")[2]
                methods.append("    " + line + (f" (block: where {bounds})" if bounds else ""))
    own = sorted(methods)
    for line in sorted(traits):
        own += ["    " + line, *sorted(traits[line])]
    return own, sorted(implementors)


def modules(folder, path):
    """Yields the path and the page of the module in the folder, and of all modules below it."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    yield path, page
    for name in sorted(set(re.findall(r'href="(\w+)/index\.html"', page))):
        yield from modules(folder / name, f"{path}::{name}")


def main():
    root = pathlib.Path(sys.argv[1]) / "procession"
    blocks, listed, of_traits = {}, set(), {}
    for path, page in modules(root, "procession"):
        uses = [text(use) for use in re.findall(r"<code>(pub use .*?)</code>", page, re.S)]
        blocks[path] = [f"mod {path}"] + ["    " + use for use in uses]
    # all.html lists the pages of this build. The folder may also contain pages of earlier builds.
    for link in sorted(set(re.findall(r'<a href="([^"]*)">', (root / "all.html").read_text(encoding="utf-8")))):
        *folders, file = link.split("/")
        kind, _, name = file.removesuffix(".html").partition(".")
        if not file.endswith(".html") or not name:
            continue
        path = "::".join(["procession", *folders, name])
        page = (root / link).read_text(encoding="utf-8")
        own, of_traits[path] = members(page)
        listed.update(line.strip() for line in own)
        blocks[path] = [f"{kind} {path}"] + declaration(page) + own
    for path, lines in of_traits.items():
        blocks[path] += ["    " + line for line in lines if line not in listed]
    print("\n\n".join("\n".join(blocks[path]) for path in sorted(blocks)))


main()
