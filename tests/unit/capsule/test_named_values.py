"""A value is found under the name of a secret in each form in which programs, settings and messages write it."""

from __future__ import annotations

import time

import pytest

from prismdbg.capsule.secrets.masking import (
    REDACTED,
    looks_secret,
    redact_arguments,
    redact_text,
)
from prismdbg.capsule.secrets.named_values import Form
from prismdbg.capsule.secrets.rules import (
    _is_pair,
    found_in,
)

TOKEN = "Zk3a1B2c3D4e5F6g7H8i9J0kLmN"
LONG = "a1B2" * 150


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"Command '['false', '--token={TOKEN}']' returned non-zero exit status 1.", TOKEN),
        (f"Command '['false', '--api-key', '{TOKEN}']' returned non-zero exit status 1.", TOKEN),
        ("Command '['x', '--password', 'letmein', '--lr', '3']' died", "letmein"),
        (f'["x", "--hf-token", "{TOKEN}"]', TOKEN),
        (f'"[\\"x\\", \\"--hf-token\\", \\"{TOKEN}\\"]"', TOKEN),
        ("error: unrecognized arguments: --api-key=hunter2 --lr 3", "hunter2"),
        ("error: unrecognized arguments: --password=letmein", "letmein"),
        ("python train.py --hf-token hf9ab1 --steps 3", "hf9ab1"),
        (f"python train.py \\\n  --token {TOKEN}\n", TOKEN),
        (f"python train.py --api-key '{TOKEN}'", TOKEN),
        ("-password hunter2x -v", "hunter2x"),
        (f"args:\n- --token\n- {TOKEN}\n", TOKEN),
        (f"--pat {TOKEN}", TOKEN),
        (f"-api_key = '{TOKEN}'\n+api_key = os.environ['K']", TOKEN),  # of a diff
        (f"client().api_key = '{TOKEN}'", TOKEN),
    ],
)
def test_as_an_option(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Command '['mysql', '-pS3cretPw99']' failed", "S3cretPw99"),
        ("Command '['mysqldump', '-u', 'me', '-phunter2']' failed", "hunter2"),
        ("['sshpass', '-p', 'hunter2', 'ssh', 'host']", "hunter2"),
        ("['curl', '-u', 'me:hunter2', 'https://host']", "hunter2"),
        ('["openssl", "enc", "-pass", "pass:hunter2"]', "hunter2"),
        ("Command '['backup', '-pS3cretPw99']' failed", "S3cretPw99"),
    ],
)
def test_as_a_word_of_a_list_of_arguments(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


@pytest.mark.parametrize(
    "text",
    [
        'APPCFG={{"api_key":"{}"}}', '--cfg={{"token":"{}"}}', '{{"api_key": "{}"}}', "{{'api_key': '{}', 'lr': 3}}",
        '"{{\\"api_key\\": \\"{}\\"}}"', '{{"api_key": "{}', "b'api_key=\"{}\"'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [LONG, LONG * 20])
def test_in_quotes_however_long_it_is(text: str, value: str) -> None:
    whole = text.format(value)
    assert redact_text(whole) == text.format(REDACTED)
    assert looks_secret("SETTING", whole)
    assert redact_arguments(["x", whole]).words == ("x", text.format(REDACTED))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f'api_key: str = "{TOKEN}"', TOKEN),
        ('api_key: str = "letmein"', "letmein"),
        ('    password: Optional[str] = "letmein"', "letmein"),
        ("password: Annotated[str | None, dict[str, str]] = 'letmein'", "letmein"),
        ('password: str = Field("letmein")', "letmein"),
        ('password: str = pydantic.Field(default="letmein")', "letmein"),
        ('password = SecretStr("letmein")', "letmein"),
        ("os.environ.setdefault('API_KEY','letmein')", "letmein"),
        ("os.getenv('API_KEY', 'letmein')", "letmein"),
        ('monkeypatch.setenv("DB_PASSWORD", "letmein")', "letmein"),
        (f'("api_key","{TOKEN}")', TOKEN),
        ('[("lr", "0.1"), ("api_key", "hunter2")]', "hunter2"),
        (f'["lr", "0.1", "api_key", "{TOKEN}", "seed", "3"]', TOKEN),
        ('config.set("db", "password", "hunter2")', "hunter2"),
        (f'add_argument("--api-key", default="{TOKEN}")', TOKEN),
        (f'add_argument(\n    "--api-key",\n    type=str,\n    help="a, b",\n    default="{TOKEN}",\n)', TOKEN),
        (f'token = R"{TOKEN}"', TOKEN),
        (f'token = rb"{TOKEN}"', TOKEN),
        (f'token = """{TOKEN}"""', TOKEN),
        (f"token = '''\n{TOKEN}\n'''", TOKEN),
        (f"const token = `{TOKEN}`", TOKEN),
        (f'var token = @"{TOKEN}"', TOKEN),
        (f'char token[] = "{TOKEN}"', TOKEN),
        (f"API_KEY ?= {TOKEN}", TOKEN),
        (f'tokens = ["{TOKEN}"]', TOKEN),
        (f'tokens = (\n    "{TOKEN}",\n)', TOKEN),
        ("passwords = {'x', 'yes', 'hunter2a'}", "hunter2a"),
        ("passwords:\n  - me\n  - hunter2a\nlr: 3", "hunter2a"),
        (f"api_key: |\n  {TOKEN}\nlr: 3", TOKEN),
        (f"api_key: >-  # of the hub\n\n    {TOKEN}\n", TOKEN),
        ("password: |\n  letmein\n", "letmein"),
        ('{"password": "p\\"q1w2"}', 'p\\"q1w2'),
        ('{"password": "ab\\\\cd"}', "ab\\\\cd"),
        ("{\\'password\\': \\'letmein\\'}", "letmein"),
        (f"GIT_PAT={TOKEN}", TOKEN),
        (f'AZURE_DEVOPS_EXT_PAT = "{TOKEN}"', TOKEN),
        (f"pat: {TOKEN}", TOKEN),
        (f'{{"githubPat": "{TOKEN}"}}', TOKEN),
        ("secretkey: 'hunter2'", "hunter2"),
    ],
)
def test_as_programs_and_settings_write_it(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


MIXED = "Tr0ub4dor9xQ"


@pytest.mark.parametrize("value", [MIXED, "p4ssw0rd", "Summer2024!", "a1b2c3d4e5", "Ab-9xQ2!z7", "db_Tr0ub4dor"])
@pytest.mark.parametrize(
    "text",
    [
        "db:\n  user: me\n  pass: {}\n  port: 5432\n",
        "pwd: {}\n",
        "[db]\npass={}\n",
        "[db]\npwd = {}  ; of the account\n",
        "refused: user=a, pass={}",
        "no server for host=h user=u pwd={}.",
        "(user=u, pwd={})",
        "UID=sa PWD={};Server=h",
        "token={}",
        "token: {} was refused",
        "hub.token = {}\n",
        "sessionToken={}",
        "--token {} --lr 3",
    ],
)
def test_what_no_program_is_written_of_is_found_without_quotes(text: str, value: str) -> None:
    assert redact_text(text.format(value)) == text.format(REDACTED).replace(f"{REDACTED}.", REDACTED)


@pytest.mark.parametrize("name", ["pass", "pwd", "db.pass"])
def test_a_password_may_be_a_word_with_digits_in_it(name: str) -> None:
    assert redact_text(f"{name}: hunter2abc") == f"{name}: {REDACTED}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<add key="Password" value="Tr0ub4dor9xQ"/>', MIXED),
        ('<add key="Db:Password" value="letmein" />', "letmein"),
        ("<property name='db.password'\n  value = 'let\"mein'/>", 'let"mein'),
        ('<setting name="api_key" value="hunter2"/>', "hunter2"),
        ("FROM x\nENV DB_PASSWORD Tr0ub4dor9xQ\nRUN y", MIXED),
        ('ENV DB_PASSWORD "letmein"\n', "letmein"),
        ("ENV DB_PASSWORD letmein \\\n", "letmein"),
        ("  setenv API_TOKEN letmein\r\n", "letmein"),
        ("SetEnv SMTP_PASS letmein", "letmein"),
        ("setx HF_TOKEN Tr0ub4dor9xQ", MIXED),
    ],
)
def test_as_an_attribute_or_a_variable_of_an_image(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/work/Tr0ub4dor9xQ\npwd: src/m0d3l1x\npwd\npwd = os.getcwd()\nPWD: /a1b2c3d4\n",
        "if x:\n    pass\nelse:\n    pass  # Tr0ub4dor9xQ\nclass A: pass\n",
        "token: 5\ntoken=<pad>\nmax_tokens=Tr0ub4dor9xQ\ntokens: 100\ntoken: 0x1F2e3D4c5b\ntoken: 20261126T101112",
        "pad_token: A1b2C3d4\neos_token=a1b2c3d4e5\nmask-token: A1b2C3d4\nnext_token = t1k2n3x4\nlast_pass: a1b2c3d4e5",
        "token = lexer.next()\ntoken=token\ntoken = next(tokens)\ntoken=self.t0k3n4x\ntoken = t0k3n4x(5)\ntoken = a[1]",
        "token = Base64Token\ntoken=Conv2dFused\ntoken=token12345\ntoken: fp8_e4m3fn\ntoken=int8_float32\ntoken: int8x",
        "token=layer_1_blk_3\ntoken: 1024x768x3\ntoken=${T0k3n4x}\ntoken=$T0K3N4X\ntoken: {{ t0k3n4x }}\ntoken=%s",
        "pass: forward12\npass=layer2\nPASS: test_a1b2.py::c3\npass: 12/12\npass: float32x\npass=PostGrad2\n2 pass: 3d",
        "tokenizer: gpt2x4y5z6\npassed=a1b2c3d4e5\npass_rate: a1b2c3d4e5\ntoken_type: a1b2c3d4e5\nby_pass=a1b2c3d4e5",
        '<add key="Theme" value="Tr0ub4dor9xQ"/>\n<add key="Password" value=""/>\n<add key="Password" value="true"/>',
        '<option name="pad_token" value="pad"/>\n<add key="Password" value="${PASSWORD}"/>',
        "ENV LANG C.UTF-8\nENV PWD /work\nENV DB_PASSWORD $X\nENV DB_PASSWORD_FILE /run/x\nENV USE_PASSWORD true",
        "the ENV DB_PASSWORD must be set\nENV\nDB_PASSWORD\nletmein",
    ],
)
def test_without_quotes_names_numbers_places_and_words_are_none(text: str) -> None:
    assert redact_text(text) == text


def test_each_of_several_is_found() -> None:
    first, second = TOKEN, TOKEN[::-1]
    for text in (
        f"tokens = ['{first}', '{second}']",
        f'tokens: ["{first}" + "{second}"]',
        f"tokens:\n  - '{first}'\n  - {second}\n",
        f"api_key: |\n  {first}\n  {second}\nlr: 3\n",
    ):
        shown = redact_text(text)
        assert first not in shown and second not in shown and REDACTED in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=p@ss,w0rd&x)y}z9", "password=<redacted>"),
        ("password=p@ss,w0rd&x)y}z9 user=bob", "password=<redacted> user=bob"),
        ("DB_PASSWORD=p@ss,w0rd\nLR=3", "DB_PASSWORD=<redacted>\nLR=3"),
        ("DB_PASSWORD=opensesame,x;y=z\r\n", "DB_PASSWORD=<redacted>\r\n"),
        ("--password=p@ss,w0rd --lr=3", "--password=<redacted> --lr=3"),
        ("login(password=abc123, user='bob')", "login(password=<redacted>, user='bob')"),
        ("login(password=abc123)", "login(password=<redacted>)"),
        ("(password=abc123).", "(password=<redacted>)."),
        ("password=abc123,user=bob;", "password=<redacted>,user=bob;"),
        ("{password: abc123}, {user: bob}", "{password: <redacted>}, {user: bob}"),
        ('["PASSWORD=abc123","b"]', '["PASSWORD=<redacted>","b"]'),
    ],
)
def test_without_quotes_it_goes_to_the_end_of_the_word(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DB_PASSWORD=x9(kL2mQ\nLR=3", "x9(kL2mQ"),
        ("export API_KEY=ab[c9!kL2\n", "ab[c9!kL2"),
        ("Driver={ODBC Driver 17};Server=x;Password={hunter2x};", "{hunter2x"),
        ("DB_PASSWORD={aB3xY9q}\n", "{aB3xY9q}"),
        (f"map[api_key:{{{TOKEN}}}]", f"{{{TOKEN}"),
        ("password={{hunter2}}", "{{hunter2"),
        ("DB_PASSWORD=`x9!kL2mQ\nX=1", "`x9!kL2mQ"),
        ("password=/a~b/c", "/a~b/c"),
        ("curl -u a,b:s3cretpw http://h", "s3cretpw"),
    ],
)
def test_brackets_braces_and_marks_may_be_a_part_of_it(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


def test_an_argument_in_braces_is_redacted() -> None:
    assert redact_arguments(["x", "--cfg=password={hunter2x}"]).words == ("x", "--cfg=password=<redacted>}")


def test_where_it_may_end_sooner_the_shorter_one_is_known_elsewhere() -> None:
    assert redact_text("password=hunter2x,w0rd hunter2x") == f"password={REDACTED} {REDACTED}"
    assert [found.value for found in found_in("password=hunter2x,w0rd")] == ["hunter2x", "hunter2x,w0rd"]


@pytest.mark.parametrize(
    "text",
    [
        "usage: train.py [-h] [--token TOKEN] [--password PASSWORD] [--api-key=KEY] [--hf-token <token>] [--auth str]",
        "--password TEXT  the password of the account\n--api-key is required\nuse --token or --api-key, --password too",
        "error: argument --token: expected one argument",
        "--key-dim 64 --max-tokens 4096 --pad-token <pad> --eos-token </s> --sort-key loss1 --pass=canonicalize",
        "--password=$PASSWORD --token ${TOKEN} --api-key=... --secret %s --password-file /run/secrets/db1",
        'parser.add_argument("-p", "--password", help="of the account 1")\nadd("--token", "-t", default=None)',
        'click.option("--password", "login_word")\nclick.option("--api-key", "api_key", default="")',
        "os.getenv('API_KEY', '')\nos.environ.get('HF_TOKEN', 'none')\nsetdefault('TOKENIZERS_PARALLELISM', '1')",
        'fields = ["user", "password", "email2x", "token", "address1"]',
        '("password", "utf-8")\n("secret", "base64")\n("api_key", "api_key_2")\n("token", "bearer")\n("pwd", "a.txt")',
        'tokens = ["hello1", "wor1d2", "<s>", "[unused12]", "layer_12_attention_345"]\nkeys = ["layer_001.weight"]',
        'keys: ["layers_0001_attention_q", "x"]\nsecrets:\n  - db_password\n  - source: x\n',
        'def f(access_token: str, connection: str, scope: str = "openid1"): ...',
        'def f(x) -> \'PotentialSecret\':\n    """Custom JSON decoder"""',
        'class ClientToken:\n    missing: str = "93521x"',
        "token: |\n  {{ .Values.token }}\ndescription: |\n  hunter2x",
        'pat = r"[a-z]+\\d{3}"\nFILE_PAT = "*.py"\nurl_pat = "https?://x1"\npat: "Patricia1"\n--pat "*.p1"',
        "docker run -p 8080:80 -pthread -p2p -pipeline4 /x-pS3cret9",
        "['mysql', '-p', 'db']\n['mkdir', '-p', 'Data2Dir9']",
        "password=`cat file`\ntoken = ``",
        "API_KEY=os.getenv('X')\nAPI_KEY=get_key()\nAPI_KEY=os.getenv(\nTOKENS=[1,2]\n",
        "password={user}\npassword={self.password!r}\nf'token={tokens[0]}'\npassword={}",
        "--pad-token=pad12345 --eos-token eot_1234",
    ],
)
def test_what_only_looks_like_those_is_none(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [("FILE_PAT", "*.py"), ("PAT", "true"), ("URL_PAT", "https://x"), ("PATTERN", "a1b2c3d4"), ("PAT_DIR", "a1b2c3d4")],
)
def test_a_pattern_is_no_personal_access_token(name: str, value: str) -> None:
    assert not looks_secret(name, value)
    assert redact_arguments(["x", f"--{name.lower()}", value]).redacted == ()


@pytest.mark.parametrize("name", ["AZURE_DEVOPS_EXT_PAT", "GIT_PAT", "pat", "PAT2", "githubPat"])
def test_a_personal_access_token_is_a_secret(name: str) -> None:
    assert looks_secret(name, "a1b2c3d4e5")
    assert redact_arguments(["x", "--pat", "a1b2c3d4e5"]).words == ("x", "--pat", REDACTED)


@pytest.mark.parametrize("value", ["/a.." * 18 + "!", "/a~" * 120 + "!", "./" * 200 + "!"])
def test_no_value_takes_long_to_be_told_from_a_path(value: str) -> None:
    before = time.process_time()
    assert _is_pair("password", value, Form.QUOTED)
    assert time.process_time() - before < 1
    assert not _is_pair("password", "~/a..b/c~/d", Form.QUOTED)
