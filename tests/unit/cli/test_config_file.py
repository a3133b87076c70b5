"""The user's `config.toml` and variables: defaults of options, the order of the three, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from prismdbg_tui.drawing.themes import use_themes
from prismdbg_tui.session.keymap import own_keys

from prismdbg.capsule.secrets import masking, own_rules
from prismdbg.capsule.secrets import rules as secrets
from prismdbg.checkpoint.cache import cache_folder
from prismdbg.cli import main, registry
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.config_defaults import apply_defaults
from prismdbg.errors import UsageError
from prismdbg.model import user_code
from prismdbg.settings.user_config import user_config

WHOLE_LINES = {"replay": ["."], "record": ["-o", "RUN", "x"], "graph": ["simulate", "x"]}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "prismdbg").mkdir()
    return tmp_path / "prismdbg" / "config.toml"


def given(name: str, command: click.Command, *arguments: str) -> dict[str, object]:
    """What the command's function would be called with."""
    context = click.Context(click.Group("prismdbg"), info_name="prismdbg")
    apply_defaults(context, name, command, user_config())
    return command.make_context(name, list(arguments), parent=context).params


def test_the_line_comes_before_a_variable_and_a_variable_before_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replay = registry.entries()["replay"].load()
    config.write_text('[replay]\nruntime = "local"\ntimeout = 30\n')
    found = given("replay", replay, str(tmp_path))
    assert (found["runtime"], found["timeout"]) == ("local", 30.0)
    monkeypatch.setenv("PRISMDBG_REPLAY_RUNTIME", "docker")
    assert given("replay", replay, str(tmp_path))["runtime"] == "docker"
    assert given("replay", replay, str(tmp_path), "--runtime", "plain")["runtime"] == "plain"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Callable[..., tuple[str, ...]]]:
    """What `why` takes as the user's own code, given some options."""

    def told(*options: str) -> tuple[str, ...]:
        main.run(["why", str(tmp_path / "nothing"), *options])
        return user_code.paths()

    yield told
    user_code.use(())


def test_the_users_own_code_is_from_the_line_else_from_a_variable_else_from_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Callable[..., tuple[str, ...]]
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    config.write_text('user-code = ["~/src", "/opt/kit/"]\n')
    assert told() == ("/home/me/src", "/opt/kit")
    monkeypatch.setenv("PRISMDBG_USER_CODE", "/a:~/b")
    assert told() == ("/a", "/home/me/b")
    assert told("--user-code", "c/../d", "--user-code", "/e") == (str(tmp_path / "d"), "/e")
    assert told() == ("/a", "/home/me/b")


def test_the_users_own_code_for_one_command(config: Path, told: Callable[..., tuple[str, ...]]) -> None:
    config.write_text('user-code = "/a"\n[why]\nuser-code = "/b"\n')
    assert told() == ("/b",)


def test_flags_lists_and_subcommands(config: Path) -> None:
    @click.group()
    def top() -> None: ...

    @top.command()
    @click.option("--all", "everything", is_flag=True)
    @click.option("--try", "tried", multiple=True)
    def inner(everything: bool, tried: tuple[str, ...]) -> None: ...

    config.write_text('[top.inner]\nall = true\ntry = ["pp=1", "tp=2"]\n')
    context = click.Context(click.Group("prismdbg"), info_name="prismdbg")
    apply_defaults(context, "top", top, user_config())
    below = top.make_context("top", ["inner"], parent=context)
    assert inner.make_context("inner", [], parent=below).params == {"everything": True, "tried": ("pp=1", "tp=2")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[replai]\n", "unknown command 'replai'; did you mean 'replay'?"),
        ("[list]\nruntim = 1\n", "[list]: unknown option 'runtim'"),
        ("[list]\njson = []\n", "json has a value that no option takes"),
        ("runtime = 1\n", "runtime stands outside a table"),
        ("theme = 1\n", "theme must be a name"),
        ("user-code = ['src']\n", "user-code must be a list of absolute paths"),
        ("user-code = 1\n", "user-code must be a list of absolute paths"),
        ("[secrets]\nvalues = ['(']\n", "values in [secrets]"),
        ("[secrets]\nname = ['x']\n", "unknown 'name' in [secrets]"),
        ("[replay\n", "config.toml: Expected"),
        ("[list]\njson = 'x'\n", "config.toml): "),
    ],
)
def test_what_is_wrong_is_one_error_that_names_the_file(
    config: Path, capfd: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    config.write_text(text)
    assert main.run(["list", str(config.parent)]) == ExitCode.USAGE
    written = capfd.readouterr().err
    assert said in written and "config.toml" in written and "Traceback" not in written


def test_a_wrong_variable_is_named(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISMDBG_LIST_JSON", "perhaps")
    assert main.run(["list", str(config.parent)]) == ExitCode.USAGE
    assert "--json (in PRISMDBG_LIST_JSON): " in capfd.readouterr().err


def test_the_example_of_the_documentation_is_right(config: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    lines = page[page.index("    theme =") :].splitlines()
    config.write_text("\n".join(line[4:] for line in lines if line.startswith("    ")))
    read = user_config()
    for name in read.commands:
        given(name, registry.entries()[name].load(), *WHOLE_LINES[name])
    assert set(read.commands) == {"replay", "record", "graph"} and read.theme and own_keys()


def test_help_is_shown_whatever_stands_in_the_file_of_another_command(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text("[replay]\nruntime = 'nonsense'\n")
    assert main.run(["list", "--help"]) == main.run(["replay", "--help"]) == ExitCode.OK


def shown_default(capfd: pytest.CaptureFixture[str], option: str, *command: str) -> str:
    """What the help of a command says in brackets of an option."""
    assert main.run([*command, "--help"]) == ExitCode.OK
    text = " ".join(capfd.readouterr().out.partition("Options:")[2].split())
    _, _, about = text.partition(f"{option} ")
    return about.partition(" --")[0].rpartition("[default: ")[2].partition("]")[0]


def test_help_shows_the_defaults_that_are_in_force_also_where_the_usual_ones_are_words(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(
        '[replay]\nruntime = "local"\ntimeout = 120\nlimit-pids = 64\n'
        '[record]\non-incident = "curl x"\n[graph.simulate]\ncluster = "c.yaml"\njson = true\n'
    )
    assert shown_default(capfd, "--runtime", "replay") == "local"
    assert shown_default(capfd, "--timeout", "replay") == "120"
    assert shown_default(capfd, "--limit-pids", "replay") == "64"
    assert shown_default(capfd, "--on-incident", "record") == "curl x"
    assert shown_default(capfd, "--cluster", "graph", "simulate") == "c.yaml"
    assert shown_default(capfd, "--json", "graph", "simulate") == "True"
    monkeypatch.setenv("PRISMDBG_REPLAY_RUNTIME", "docker")
    assert shown_default(capfd, "--runtime", "replay") == "docker"
    assert shown_default(capfd, "--runtime", "debug") == "the first that works here"


def test_help_shows_the_paths_of_the_users_own_code(
    config: Path, capfd: pytest.CaptureFixture[str], told: Callable[..., tuple[str, ...]]
) -> None:
    config.write_text('user-code = ["/a", "/b"]\n[why]\nuser-code = "/c"\n')
    assert shown_default(capfd, "--user-code", "replay") == "/a, /b"
    assert shown_default(capfd, "--user-code", "why") == "/c"


def test_own_rules_for_secrets(config: Path) -> None:
    config.write_text("[secrets]\nnames = ['ACME_LIC', 'ACME_LICENSE']\nvalues = ['acme-[0-9]{4}', 'seat:(\\w+)']\n")
    assert not secrets.is_secret_setting("ACME_LICENSE", "abc")
    try:
        main.run(["list", str(config.parent)])
        assert secrets.is_secret_setting("ACME_LICENSE", "abc") and not secrets.is_secret_setting(
            "MY_ACME_LICENSE_X", "abc"
        )
        assert masking.redact_text("at acme-1234, seat:bob7") == "at <redacted>, seat:<redacted>"
        for_ranks = own_rules.as_texts()
        own_rules.use((), ())
        own_rules.use_texts(*for_ranks)
        assert masking.redact_text("at acme-1234, seat:bob7") == "at <redacted>, seat:<redacted>"
        own_rules.use_texts(for_ranks[0], ("(of a later Python", *for_ranks[1]))
        assert masking.redact({"A": "acme-1234", "B": "x"}).redacted == ("A",)
    finally:
        own_rules.use((), ())


def test_keys_and_the_theme_of_the_screen(config: Path) -> None:
    from textual.app import App

    config.write_text('theme = "nord"\n[keys]\nnext = "f10"\n[keys.job]\nnext_order = "o"\n')
    assert own_keys() == {"next": "f10"}
    app: App[None] = App()
    use_themes(app)
    assert app.theme == "nord"


def test_a_table_of_keys_is_named_as_it_stands_in_that_file(config: Path) -> None:
    config.write_text('[keys]\njob = "f10"\n')
    with pytest.raises(UsageError, match=r"keys\.job must be a table of keys") as refused:
        own_keys()
    assert refused.value.hint.startswith("write [keys.job], ")


def test_keys_in_two_files_and_an_unknown_theme(config: Path) -> None:
    from textual.app import App

    config.write_text('theme = "nort"\n[keys]\nnext = "f10"\n')
    config.with_name("keys.toml").write_text('next = "f9"\n')
    with pytest.raises(UsageError, match="both choose keys"):
        own_keys()
    with pytest.raises(UsageError, match=r"unknown theme 'nort'; did you mean 'nord'"):
        use_themes(App())


def test_a_user_without_a_home_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number that its list of users lacks, and without HOME."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "PRISMDBG_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert main.run(["list", str(tmp_path)]) == ExitCode.OK
    assert cache_folder() == Path("/.cache/prismdbg")
