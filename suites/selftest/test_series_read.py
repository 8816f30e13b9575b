"""What people have becomes the same series: mails in every dress, lists, folders, standard input, commits."""

from __future__ import annotations

import base64
import io
import os
import quopri
from pathlib import Path

import pytest
from patching import BASE, DATA, base_tree, commit, edit, one, repository, run

from labs.errors import BadInput
from labs.series import Series, apply, by_component, examine, lint, read

STEPS = (DATA / "out-of-order.mbox").read_bytes()
LF = (DATA / "lf.patch").read_bytes()
HEAD, BODY = LF.split(b"\n\n", 1)
ACCENT = (DATA / "ascii-label-utf8-body.mbox").read_bytes()


def subjects(series: Series) -> list[str]:
    return [patch.subject for patch in series.patches]


def mails() -> dict[int, bytes]:
    """The mails of steps 0 to 3 by number."""
    parts = [b"From " + part for part in STEPS.split(b"From ")[1:] if part[:1] in b"0123456789abcdef"]
    joined = {int(part.split(b"[PATCH v2 ")[1][:1]): part for part in parts}
    assert sorted(joined) == [0, 1, 2, 3]
    return joined


@pytest.mark.parametrize("name", ["rfc2047-from.mbox", "raw-utf8-from.mbox"])
def test_authors_and_subjects_are_read_whatever_their_coding(name: str) -> None:
    (series,) = read(str(DATA / name))
    (patch,) = series.patches
    assert patch.author == "Zoë Ångström-Łódź <a@example.org>"
    assert patch.subject == series.title == "README: traduire é → ü en français"


def test_a_latin_1_author(tmp_path: Path) -> None:
    text = LF.replace(b"From: A Dev", b"From: Zo\xeb")
    assert one(text, tmp_path).patches[0].author == "Zoë <a@example.org>"
    for damaged in (b"=?nonsense?q?Zo=EB?=", b"=?utf-8?q?=EB=EB?=", b"=?utf-8?b?a?=", b"=?utf-8?q?"):
        (patch,) = one(LF.replace(b"From: A Dev", b"From: " + damaged), tmp_path).patches
        assert "a@example.org" in patch.author and patch.problems == ()


CODINGS = {
    "quoted-printable": lambda body: quopri.encodestring(body),
    "base64": lambda body: base64.encodebytes(body),
    "8bit": lambda body: body,
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "bom"])
def test_codings_of_the_body_change_nothing(coding: str, ending: bytes, mark: bytes, tmp_path: Path) -> None:
    head, body = ACCENT.split(b"\n\n", 1)
    head = head.replace(b"us-ascii", b"utf-8").replace(b"7bit", coding.encode())
    body = body.replace(b"+hello = hi", b"+hello = hi " + b"long " * 30)
    plain = one(head.replace(coding.encode(), b"8bit") + b"\n\n" + body, tmp_path)
    dressed = mark + (head + b"\n\n" + CODINGS[coding](body.replace(b"\n", ending))).replace(b"\r\n", b"\n").replace(
        b"\n", ending
    )
    (patch,) = one(dressed, tmp_path).patches
    assert (patch.id, patch.author, patch.problems) == (plain.id, "A Dev <a@example.org>", ())
    assert patch.files[0].hunks[0].new == plain.patches[0].files[0].hunks[0].new
    assert "Cédric" in patch.message


@pytest.mark.parametrize("head", [b"", b"From: A Dev <a@example.org>\nSubject: x\n\n"], ids=["bare", "mail"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(head: bytes, tmp_path: Path) -> None:
    text = head + b"--- a/README\n+++ b/README\n@@ -1 +1 @@\n-a\n+b\n"
    (patch,) = one(b"\xef\xbb\xbf" + text, tmp_path).patches
    assert (patch.problems, patch.author, patch.id) == (
        (), "A Dev <a@example.org>" if head else "", one(text, tmp_path).id)  # fmt: skip


def test_damaged_base64_is_named(tmp_path: Path) -> None:
    text = (DATA / "base64.mbox").read_bytes().replace(b"LS0tCiBS", b"LS0tC!BS")
    assert "base64 text is damaged" in str(lint(one(text, tmp_path))[0])


def test_a_patch_in_a_multipart_mail(tmp_path: Path) -> None:
    head = HEAD + b'\nMIME-Version: 1.0\nContent-Type: multipart/signed; boundary="b"\n\nnothing here\n'
    text = head + b"--b\nContent-Type: text/plain\n\n" + BODY
    text += b"\n--b\nContent-Type: application/pgp-signature; name=x\n\n-----BEGIN PGP-----\nx\n--b--\n"
    assert one(text, tmp_path).id == one(LF, tmp_path).id


def test_the_author_in_the_body_is_the_author(tmp_path: Path) -> None:
    (patch,) = one(LF.replace(b"\n\n---\n", b"\n\nFrom: B <b@example.org>\n\nWhy.\n---\n", 1), tmp_path).patches
    assert (patch.author, patch.message) == ("B <b@example.org>", "Why.")


def test_from_in_the_body_is_no_new_mail() -> None:
    (series,) = read(str(DATA / "from-line-in-body.mbox"))
    assert "From the trace we see the waiter sleep." in series.patches[0].message


def test_a_full_from_line_without_a_header_below_is_no_new_mail(tmp_path: Path) -> None:
    said = b"\n\nFrom x@y.z Mon Sep 17 00:00:00 2001\nhe wrote.\n---\n"
    assert subjects(one(LF.replace(b"\n\n---\n", said, 1), tmp_path)) == ["README: two"]


def test_junk_before_the_first_mail_and_a_missing_author() -> None:
    (junk,), (nobody,) = read(str(DATA / "junk-first-char.patch")), read(str(DATA / "no-from.patch"))
    assert (subjects(junk), junk.patches[0].author) == (["README: two"], "A Dev <a@example.org>")
    assert (subjects(nobody), nobody.patches[0].author) == (["README: two"], "")


@pytest.mark.parametrize("name", ["bracket-subject.mbox", "bracket-subject-k.mbox"])
def test_brackets_that_are_the_authors_stay(name: str) -> None:
    assert subjects(read(str(DATA / name))[0]) == ["[cgroup] README: hoi"]


@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3), (3, 0, 2, 1), (2, 3, 1), (1, 2, 3, 2)], ids=["as sent", "mixed", "no cover", "one twice"]
)
def test_order_is_that_of_the_subjects(order: tuple[int, ...], tmp_path: Path) -> None:
    series = one(b"".join(mails()[number] for number in order), tmp_path, "x.mbox")
    assert subjects(series) == [f"README: step {number}" for number in (1, 2, 3)]
    assert lint(series) == ()
    assert any("cover letter left out" in note for note in series.notes) == (0 in order)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda m: [m[1], m[3]], "incomplete: 2 of 3 missing"),
        (lambda m: [m[0], m[1]], "incomplete: 2, 3 of 3 missing"),
        (lambda m: [m[2]], "incomplete: 1, 3 of 3 missing"),
        (lambda m: [m[1], m[2].replace(b"v2 2/3", b"v3 2/3"), m[3]], "versions v2, v3 of a series are mixed"),
        (lambda m: [m[1], m[2].replace(b"2/3", b"2/4"), m[3]], "patches of series of 3 and 4 are mixed"),
        (lambda m: [m[1], m[2], m[2].replace(b"+line2", b"+other"), m[3]], "patch 2/3 is there more than once"),
        (lambda m: [m[1], m[2], m[3], m[3].replace(b"3/3", b"4/3")], "patch 4/3 is there more than once, or beyond"),
        (lambda m: [*m.values(), LF], "patch 'README: two' has no number among patches k/3"),
        (lambda m: [m[1], m[2].split(b"\ndiff")[0] + b"\n", m[3]], "cut short: its diffstat promises 1 files"),
        (lambda m: [m[1], m[2].split(b"\n---")[0] + b"\n", m[3]], "no diff in patch 'README: step 2'"),
    ],
)
def test_what_is_no_whole_series_is_refused(change: object, said: str, tmp_path: Path) -> None:
    data = b"".join(change(mails()))  # type: ignore[operator]
    series = one(data, tmp_path, "x.mbox")
    assert said in "; ".join(map(str, lint(series)))
    assert "malformed" in {row.state for row in examine(series, BASE)}


def test_replies_are_left_out_even_with_a_diff_in_them(tmp_path: Path) -> None:
    reply = mails()[2].replace(b"Subject: [PATCH", b"Subject: Re: [PATCH").replace(b"+line2", b"+better")
    series = one(mails()[1] + reply + mails()[2] + mails()[3], tmp_path, "x.mbox")
    assert subjects(series) == ["README: step 1", "README: step 2", "README: step 3"]
    assert [note for note in series.notes if "reply left out" in note]
    assert "no diff in it" in str(lint(one(reply, tmp_path))[0])


def test_what_b4_makes(tmp_path: Path) -> None:
    """b4 am: an mbox with its own separators and links, and the cover in a file of another kind beside it."""
    folder = tmp_path / "b4"
    folder.mkdir()
    text = b"".join(mails()[number] for number in (1, 2, 3))
    for commit_id in {line for line in text.split(b"\n") if line.startswith(b"From ") and b"Mon Sep 17" in line}:
        text = text.replace(commit_id, b"From git@z Thu Jan  1 00:00:00 1970")
    text = text.replace(b"Signed-off-by", b"Link: https://lore.example/r/1\nSigned-off-by")
    (folder / "v2_steps.mbx").write_bytes(text)
    (folder / "v2_steps.cover").write_bytes(mails()[0])
    (series,) = read(str(folder))
    assert (subjects(series), lint(series)) == ([f"README: step {n}" for n in (1, 2, 3)], ())


def test_a_folder_sorts_as_people_count(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        text = f"--- /dev/null\n+++ b/f{number}\n@@ -0,0 +1 @@\n+{number}\n"
        (tmp_path / f"{number}-add.patch").write_text(f"step {number}\n\n{text}")
    (tmp_path / "README.md").write_text("not a patch")
    (series,) = read(str(tmp_path))
    assert subjects(series) == ["step 1", "step 2", "step 10"]


def test_a_folder_of_format_patch_files_with_a_cover(tmp_path: Path) -> None:
    folder = tmp_path / "patches" / "runc" / "steps"
    folder.mkdir(parents=True)
    for number, mail in mails().items():
        (folder / f"v2-000{number}-x.patch").write_bytes(mail)
    (series,) = read(str(folder))
    assert (series.name, series.component, series.intent) == ("steps", "runc", "fix")
    assert subjects(series) == [f"README: step {number}" for number in (1, 2, 3)]
    (folder / "v2-0002-x.patch").unlink()
    assert "incomplete" in str(lint(read(str(folder))[0])[0])


class TestLists:
    def test_options_comments_and_disabled_entries(self) -> None:
        (series,) = read(str(DATA / "quilt"))
        assert [Path(patch.where.file).name for patch in series.patches] == [
            "0001-readme.patch",
            "0002-kconfig-p0.diff",
            "0003-trailing-space.patch",
            "0005-crlf-line.patch",
            "0006-reverted.patch",
            "0007-no-newline-at-eof.patch",
        ]
        assert [patch.files[0].path for patch in series.patches[1:3]] == [
            "kernel/cgroup/Kconfig",
            "kernel/cgroup/cgroup.c",
        ]
        assert series.patches[4].files[0].hunks[0].new == (b"hello quilt\n", b"world six\n")
        assert [note for note in series.notes if "series:6: 0004-disabled.patch is disabled" in note]
        assert read(str(DATA / "quilt/series"))[0].id == series.id

    @pytest.mark.parametrize("name", ["x.patch", "series", "series.toml"])
    def test_a_pipe_is_not_read(self, name: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / name)
        with pytest.raises(BadInput, match=r"x\.patch: is no file" if name == "x.patch" else "no patches in it"):
            read(str(tmp_path))

    def test_guards(self) -> None:
        (series,) = read(str(DATA / "quilt/series.conf"))
        names = [Path(patch.where.file).name for patch in series.patches]
        assert names == ["0001-readme.patch", "0005-crlf-line.patch"]
        assert len([note for note in series.notes if "is disabled by" in note]) == 3

    @pytest.mark.parametrize(
        "line, said",
        [
            ("missing.patch", "series:2: missing.patch: no such file"),
            ("x.patch -q", "series:2: option -q of x.patch is not known"),
            ("x.patch -p", "series:2: option -p of x.patch is not known"),
            ("x.patch -pone", "series:2: option -pone"),
            ("../x.patch", "series:2: path '../x.patch' leaves the tree: refused"),
            ("/etc/passwd", "series:2: path '/etc/passwd' is absolute: refused"),
            ("x.patch -p3", "x.patch:3: name 'a/README' has no 3 leading folders to strip"),
            ("# nothing", "series: no patch in the list"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(self, line: str, said: str, tmp_path: Path) -> None:
        (tmp_path / "series").write_text(f"# list\n{line}\n")
        (tmp_path / "x.patch").write_text(
            "two\n\ndiff --git a/README b/README\n--- a/README\n+++ b/README\n@@ -1 +1 @@\n-a\n+b\n"
        )
        (series,) = read(str(tmp_path))
        assert said in "; ".join(map(str, lint(series)))

    @pytest.mark.parametrize(
        "option, path", [("-p0", "a/README"), ("-p 0", "a/README"), ("-p1", "README"), ("-pab", "README")]
    )
    def test_strip_zero_is_a_number(self, option: str, path: str, tmp_path: Path) -> None:
        (tmp_path / "series").write_text(f"x.patch {option}\n")
        (tmp_path / "x.patch").write_text("--- a/README\n+++ a/README\n@@ -1 +1 @@\n-a\n+b\n")
        assert read(str(tmp_path))[0].patches[0].files[0].path == path


@pytest.mark.parametrize(
    "old, new, path",
    [
        ("a/kernel/x.c", "b/kernel/x.c", "kernel/x.c"),
        ("kernel/x.c", "kernel/x.c", "kernel/x.c"),
        ("x.c", "x.c", "x.c"),
        ("linux-6.1.orig/kernel/x.c", "linux-6.1/kernel/x.c", "kernel/x.c"),
        ("kernel/x.c.orig", "kernel/x.c", "kernel/x.c"),
        ("a/kernel/x.c\t2026-01-01 10:00:00.000000000 +0100", "b/kernel/x.c\t2026-01-01 10:00:01", "kernel/x.c"),
        ("a/kernel/x.c 2026-01-01 10:00:00", "b/kernel/x.c 2026-01-01 10:00:01", "kernel/x.c"),
        ("a/kernel/x.c\tThu Jan  1 10:00:00 2026", "b/kernel/x.c\tThu Jan  1 10:00:01 2026", "kernel/x.c"),
        ('"a/k\\303\\251 x.c"', '"b/k\\303\\251 x.c"', "ké x.c"),
        ("a/with space.c\t", "b/with space.c\t", "with space.c"),
        ("i/kernel/x.c", "w/kernel/x.c", "kernel/x.c"),
    ],
)
def test_names_with_and_without_prefix_time_and_quotes(old: str, new: str, path: str, tmp_path: Path) -> None:
    series = one(f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n", tmp_path)
    assert (lint(series), series.patches[0].files[0].path) == ((), path)


@pytest.mark.parametrize("epoch", ["1970-01-01 00:00:00.000000000 +0000", "1969-12-31 19:00:00.000000000 -0500"])
def test_a_new_and_a_deleted_file_of_diff(epoch: str, tmp_path: Path) -> None:
    text = f"--- o/new\t{epoch}\n+++ n/new\t2026-01-01 00:00:00\n@@ -0,0 +1 @@\n+x\n"
    text += f"--- o/README\t2026-01-01 00:00:00\n+++ n/README\t{epoch}\n@@ -1,2 +0,0 @@\n-hello\n-world\n"
    tree = base_tree(tmp_path / "tree")
    assert apply(one(text, tmp_path), tree).files == ("README", "new")
    assert (tree / "new").read_text() == "x\n" and not (tree / "README").exists()


class TestManifest:
    def write(self, folder: Path, text: str) -> Series:
        for name in ("a.patch", "b.patch"):
            (folder / name).write_bytes(LF.replace(b"two", name.encode(), 1))
        (folder / "series.toml").write_text(text)
        (series,) = read(str(folder))
        return series

    def test_what_it_says(self, tmp_path: Path) -> None:
        series = self.write(
            tmp_path,
            'title = "t"\nintent = "defect"\ncomponent = "crun"\nmends = ["m"]\nbreaks = ["x"]\nupstream = ["u"]\n'
            'files = ["b.patch"]\n[parameters]\n"cglab.torn_us" = 20\n',
        )
        assert (series.title, series.intent, series.component) == ("t", "defect", "crun")
        assert (series.mends, series.breaks, series.upstream) == (("m",), ("x",), ("u",))
        assert (dict(series.parameters), subjects(series)) == ({"cglab.torn_us": 20}, ["README: b.patch"])
        assert read(str(tmp_path / "series.toml"))[0].id == series.id

    def test_branches(self, tmp_path: Path) -> None:
        series = self.write(
            tmp_path,
            '[[branch]]\nhigh = "6.2"\nfiles = ["a.patch"]\n'
            '[[branch]]\nlow = "6.12"\nhigh="6.13"\nfiles = ["b.patch"]\n',
        )
        assert subjects(series.for_version("6.1.192-3")) == ["README: a.patch"]
        assert subjects(series.for_version("6.12.90-2~bpo12+1")) == ["README: b.patch"]
        with pytest.raises(BadInput, match=r"has no patches for 6\.2; it has some for: oldest up to 6\.2, 6\.12 up to"):
            series.for_version("6.2")
        for use in (examine, apply):
            with pytest.raises(BadInput, match="has no patches of its own; choose a version"):
                use(series, BASE)

    def test_without_a_branch_for_it_the_files_count(self, tmp_path: Path) -> None:
        series = self.write(tmp_path, 'files = ["a.patch"]\n[[branch]]\nlow = "7.0"\nfiles = ["b.patch"]\n')
        assert subjects(series.for_version("6.1.192")) == ["README: a.patch"]
        assert subjects(series.for_version("7.3.4")) == ["README: b.patch"]

    @pytest.mark.parametrize(
        "text, said",
        [
            ("titel = 'x'", "key 'titel' is not known; one of: title"),
            ("intent = 'hope'", "intent = 'hope'; one of: fix, backport, defect"),
            ("mends = 'x'", "mends must be a list of texts"),
            ("title = 3", "title must be text"),
            ("= 3", "series.toml: Invalid"),
            ("files = ['../x.patch']", r"series.toml:1: path '../x.patch' leaves the tree: refused"),
            ("[[branch]]\nlow = 'six'\nfiles = ['a.patch']", "not versions"),
            ("[[branch]]\nlow = '6.1'", "a branch has low, high and files"),
            ("line_endings = 'native'", "line_endings = 'native'; one of: keep, refuse"),
        ],
    )
    def test_what_is_wrong_with_it(self, text: str, said: str, tmp_path: Path) -> None:
        with pytest.raises(BadInput) as caught:
            self.write(tmp_path, text)
        assert said in str(caught.value) and "\n" not in str(caught.value)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        series = self.write(tmp_path, 'files = ["a.patch",\n"c.patch"]')
        assert "series.toml:2: c.patch: no such file; nearest: " in str(lint(series)[0])


class TestSeveral:
    def test_plus_gives_several_and_components_are_joined(self, tmp_path: Path) -> None:
        go = "--- a/libcontainer/x.go\n+++ b/libcontainer/x.go\n@@ -1 +1 @@\n-a\n+b\n"
        (tmp_path / "runc-1.1.15+ds1.patch").write_text(go)
        steps = DATA / "out-of-order.mbox"
        series = read(f"{steps}+{tmp_path}/runc-1.1.15+ds1.patch+{DATA}/two-files.patch")
        assert [one.component for one in series] == ["kernel", "runc", "kernel"]
        joined = by_component(series)
        assert list(joined) == ["kernel", "runc"]
        assert (joined["kernel"].name, len(joined["kernel"].patches)) == ("out-of-order+two-files", 4)
        rows = examine(joined["kernel"], BASE)
        assert [row.state for row in rows] == ["clean"] * 4

    def test_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"lf\.patsch: no such series; nearest: .*lf\.patch"):
            read(str(DATA / "lf.patsch"))
        with pytest.raises(BadInput, match="an empty name: no such series"):
            read(f"{DATA}/lf.patch+")
        with pytest.raises(BadInput, match="no patches in it"):
            read(str(BASE))

    def test_standard_input(self) -> None:
        (series,) = read("-", io.BytesIO(LF))
        assert (series.name, series.id) == ("stdin", read(str(DATA / "lf.patch"))[0].id)
        (cut,) = read("-", io.BytesIO(LF[:-30]))
        assert str(lint(cut)[0]).startswith("stdin:15: ")


class TestGit:
    def test_a_range(self, tmp_path: Path) -> None:
        tree = repository(base_tree(tmp_path / "r+s"))
        for number in (1, 2):
            edit(tree / "README", "world\n", f"world\nline{number}\n")
            commit(tree, f"step {number}\n\nBecause.")
        (series,) = read(f"git:{tree}#HEAD~2..main")
        assert (subjects(series), series.name, lint(series)) == (["step 1", "step 2"], "HEAD~2..main", ())
        assert [row.state for row in examine(series, BASE)] == ["clean", "clean"]

    def test_nothing_of_the_repository_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = repository(base_tree(tmp_path / "repository"))
        edit(tree / "README", "world", "mundo")
        commit(tree, "mundo")
        (tree / ".gitattributes").write_text("* diff=evil filter=evil\n")
        evil = tmp_path / "evil"
        evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        evil.chmod(0o755)
        settings = {
            "diff.external": evil, "diff.evil.textconv": evil, "diff.evil.command": evil, "core.fsmonitor": evil,
            "core.pager": evil, "gpg.program": evil, "log.showSignature": "true", "diff.noprefix": "true",
            "format.attach": "true", "color.ui": "always", "format.numbered": "true", "filter.evil.smudge": evil,
        }  # fmt: skip
        for key, value in settings.items():
            run(tree, "git", "config", key, str(value))
        for name in ("GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            monkeypatch.setenv(name, str(evil))
        (series,) = read(f"git:{tree}#main~1..main")
        assert (subjects(series), lint(series)) == (["mundo"], ())
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        "part, said",
        [
            ("main..main", "no commit in main..main"),
            ("main..other", "no commit 'other'"),
            ("main", "not a range of commits"),
            ("--all..main", "not the name of a commit"),
        ],
    )
    def test_what_is_no_range(self, part: str, said: str, tmp_path: Path) -> None:
        tree = repository(base_tree(tmp_path / "r"))
        with pytest.raises(BadInput, match=said):
            read(f"git:{tree}#{part}")

    def test_a_folder_inside_a_repository_is_none(self, tmp_path: Path) -> None:
        tree = repository(base_tree(tmp_path / "r"))
        with pytest.raises(BadInput, match="no commit 'main'"):
            read(f"git:{tree}/kernel#main..main")

    def test_merges_are_refused(self, tmp_path: Path) -> None:
        tree = repository(base_tree(tmp_path / "r"))
        run(tree, "git", "checkout", "-qb", "side")
        edit(tree / "README", "world", "mundo")
        commit(tree, "side")
        run(tree, "git", "checkout", "-q", "main")
        (tree / "x").write_text("x")
        commit(tree, "x")
        run(tree, "git", "merge", "-q", "--no-edit", "side")
        with pytest.raises(BadInput, match="holds a merge"):
            read(f"git:{tree}#main~1..main")
