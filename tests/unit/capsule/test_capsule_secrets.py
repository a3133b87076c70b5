"""What looks like a secret stays out of a capsule; what a replay needs stays in."""

from __future__ import annotations

import pytest

from prismdbg.capsule.secrets.masking import (
    REDACTED,
    is_redacted_of,
    known_values,
    looks_secret,
    redact,
    redact_arguments,
    redact_text,
    worth_a_search,
)
from prismdbg.capsule.secrets.rules import (
    is_secret_setting,
)


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "HF_TOKEN", "HFTOKEN",
        "GITHUB_TOKEN", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "POSTGRES_PASSWORD", "my_secret", "CLIENT_SECRETS",
        "GOOGLE_APPLICATION_CREDENTIALS", "DOCKER_AUTH_CONFIG", "npm_config_//x/:_authToken", "SSH_KEY", "TOKEN2",
        "PRIVATE_KEY", "SSH_PASSPHRASE", "APIKEY", "COOKIE", "SSHPASS", "DB_PW", "DBPASS", "apiKey", "clientSecret",
        "PASSCODE", "SIGNINGKEY", "ENCRYPTKEY", "WALLET_MNEMONIC", "TOTP", "BASICAUTH",
        "SENTRY_DSN", "AUTHORIZATION", "STORAGE_ACCOUNT_KEY", "accessToken", "SLACK_WEBHOOK",
    ],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert looks_secret(name, "value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASS", "48291734"), ("AUTH_TOKEN", "9182736455"), ("MYSQL_PASS", "20241231"), ("DB_PASSWD", "4829"),
        ("DB_PWD", "48291734"), ("ADMIN_TOKEN", "40289"), ("APITOKEN_PASS", "8273645"), ("SMTP_AUTH", "482917"),
        ("accessToken", "482917"), ("ACME_TOKEN", "91827364"), ("API_KEY", "123456"), ("SSH_PASSPHRASE", "48291"),
    ],
)  # fmt: skip
def test_a_number_under_the_name_of_a_secret(name: str, value: str) -> None:
    assert looks_secret(name, value)
    option = f"--{name.lower().replace('_', '-')}"
    assert redact_arguments(["x", option, value, f"{option}={value}"]).words[1:] == (
        option,
        REDACTED,
        f"{option}={REDACTED}",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/work"),
        ("OLDPWD", "/"),
        ("RANK", "3"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("KEYBOARD", "us"),
        ("MONKEYPATCH", "1"),
        ("PASSTHROUGH", "1"),
        ("COMPASS_DIR", "/x"),
        ("SSH_AUTH_SOCK", "/run/agent.sock"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("PYTHONHASHSEED", "0"),
        ("OMP_NUM_THREADS", "1"),
        ("NCCL_DEBUG", "INFO"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("LS_COLORS", "rs=0:di=01;34"),
        ("HTTP_PROXY", "http://proxy:3128"),
        ("URL", "https://host/path:with@signs"),
        ("URL", "http://proxy:3128/simple/x@1.0"),
        ("URL", "http://proxy:80?at=/x@y"),
        ("URL", "http://proxy:$PORT/x@y"),
        ("URL", "mongodb://a:27017,b:27017/db@x"),
        ("URL", "git+ssh://git@host:org/repo.git@v1"),
        ("URL", "file://C:/data/x@y"),
        ("URL", "http://[::1]:8080/x@y"),
        ("IMAGE", "docker://[fd00::1%eth0]:5000/img@sha256:0123"),
        ("HF_TOKEN", ""),
        ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
        ("SSL_CERT_DIR", "/etc/ssl/certs"),
        ("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"),
        ("POSTGRES_PASSWORD_FILE", "/run/secrets/password"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp/key.json"),
        ("FILES", "/home/me/.aws/credentials:/home/me/token:/home/me/secret:/data/x1"),
        ("MAX_TOKENS", "4096"),
        ("PIN_MEMORY", "1"),
        ("USE_PASSWORD", "false"),
        ("NCCL_BYPASS", "x"),
        ("GIT_AUTHOR_NAME", "me"),
        ("SESSION_MANAGER", "local/host:@/tmp/.ICE-unix/1"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
        ("CHECKPOINT", "gpt2-medium-step_12000-3f786850e387550fdab836ed7e6dc881de23001b.pt"),
        ("GIT_COMMIT", "3f786850e387550fdab836ed7e6dc881de23001b"),
        ("RUN_ID", "2f1b7c2e-3b0a-4f7e-9d5e-0a1b2c3d4e5f"),
        ("PYTEST_ADDOPTS", "-p no:cacheprovider"),
        ("MASTER", "tcp://10.0.0.1:29500"),
        ("TRAIN_ARGS", "--precision bf16 -p bf16 -u 10.0.0.1:29500 --seed 3"),
        ("LESSOPEN", "| /usr/bin/lesspipe %s"),
        ("DATA", "s3://bucket/path/shard-{000..127}.tar"),
        ("CONFIG", '{"lr": 0.1, "sort_key": "loss", "eos_token": "</s>", "max_tokens": 64}'),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12.0 brand=tesla,driver>=470,driver<471"),
        ("SLURM_JOB_NODELIST", "node[01-16]"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("PAD_TOKEN", "50256"),
        ("IMG_TOKEN", "151655"),
        ("VISION_START_TOKEN", "15165500"),
        ("MAX_TOKENS", "20241231"),
        ("MAX_TOKEN", "20241231"),
        ("TOKEN", "50256"),
        ("USE_AUTH_TOKEN", "1"),
        ("USE_AUTH_TOKEN", "yes"),
        ("NUM_PASS", "20241231"),
        ("N_PASS", "2"),
        ("FORWARD_PASS", "10000000"),
        ("PASS_RATE", "0.12345678"),
        ("BYPASS", "12345678"),
        ("COMPASS", "12345678"),
        ("LOWPASS", "44100"),
        ("SMTP_AUTH", "0"),
    ],
)
def test_what_a_replay_needs(name: str, value: str) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    "value",
    [
        "https://user:hunter2@host/path",
        "postgresql://me:pw@db:5432/x",
        "redis://:pw@host",
        "postgresql://app:Ab3/x9Zq+1@db/optuna",
        "AKIA" + "A1" * 8,
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1_" * 12,
        "glpat-" + "a1" * 10,
        "hf_" + "aB" * 17,
        "npm_" + "aB3" * 12,
        "pypi-AgEIcHlwaS5vcmc" + "aB3_" * 20,
        "dckr_pat_" + "aB3" * 9,
        "dop_v1_" + "0a1b" * 16,
        "hvs." + "aB3" * 30,
        "lin_api_" + "aB3c" * 10,
        "--key sk-" + "ab1" * 10,
        "xoxb-" + "1" * 12,
        "eyJhbGciOiJI.eyJzdWIiOiIx.sig",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "Authorization: Bearer abcdefghijklmnop",
        "Authorization: Basic bWU6aHVudGVyMg==",
        '{"lr": 0.1, "wandb": {"api_key": "abc123"}}',
        '{"token": "tok-12345"}',
        "https://bucket.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=" + "ab12" * 16,
        "https://acct.blob.core.windows.net/c?sv=2022&sig=Zm9vYmFy%2Bx",
        "https://hooks.slack.com/services/T000/B000/" + "aB1" * 8,
        "https://discord.com/api/webhooks/1234567890/" + "aB_" * 20,
        "https://corp.webhook.office.com/webhookb2/" + "ab12-" * 6 + "@x/IncomingWebhook/y",
        '{"password": "hu$nter(2)"}',
        "https://me:hu$nt%25r@host",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + "aB1+" * 20 + "==;",
        "-u me:hunter2",
        "--header X-Api-Key:abc123",
        "gsk_" + "aB3" * 17,
        "lsv2_pt_" + "0a1b" * 8 + "_" + "0a1b" * 2,
        "dapi" + "0a1b" * 8,
        "pplx-" + "0a1b" * 12,
        "xai-" + "aB3c" * 20,
        "pcsk_" + "aB3c_" * 12,
        "glsa_" + "aB3c" * 8 + "_0a1b2c3d",
        "shpat_" + "0a1b" * 8,
        "ATATT3x" + "aB3c" * 20,
        "NRAK-" + "AB3C" * 7,
        "dp.pt." + "aB3c" * 10,
        "fw_" + "aB3c" * 6,
        "sq0atp-" + "aB3c_" * 5,
        "tskey-auth-" + "aB3c" * 6 + "-" + "aB3c" * 8,
        "figd_" + "aB3_" * 10,
        "PMAK-" + "0a1b" * 6 + "-" + "0a1b" * 8 + "0a",
        "nfp_" + "aB3c" * 9,
        "rubygems_" + "0a1b" * 12,
        "tvly-" + "aB3c" * 8,
        "root:$6$saltsalt$" + "aB3./" * 17 + ":19000:0:99999:7:::",
        "CREATE USER a IDENTIFIED BY 'hunter2'",
        "openssl enc -d -pass pass:hunter2 -in x",
        "aB3cD4eF5gH6iJ.atlasv1." + "aB3c" * 16,
        "key-" + "0a1b" * 8,
        "http_proxy=me:hunter2@proxy:3128",
        "curl -s -u me:hunter2 https://host/x",
        "sshpass -p hunter2 ssh host",
        "mysql -h db -phunter2 -u root",
        "<settings><password>hunter2</password></settings>",
        "env:\n- name: WANDB_API_KEY\n  value: hunter2\n",
    ],
)
def test_secret_values_under_any_name(value: str) -> None:
    assert looks_secret("SETTING", value)


def test_redaction_keeps_the_rest_and_names_what_went() -> None:
    environment = redact({"RANK": "0", "WANDB_API_KEY": "k", "B_TOKEN": "t", "DATA": "https://u:p@h/x"})
    assert environment.variables == {"RANK": "0"}
    assert environment.redacted == ("B_TOKEN", "DATA", "WANDB_API_KEY")
    assert all(word not in repr(environment) for word in ("'k'", "'t'", "u:p"))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--api-key=abc --lr 0.1", f"--api-key={REDACTED} --lr 0.1"),
        ("--token abc --steps 3", f"--token {REDACTED} --steps 3"),
        ("--hf_token=hf", f"--hf_token={REDACTED}"),
        ("+logger.password=x=y", f"+logger.password={REDACTED}"),
        ("wandb.api_key=abc", f"wandb.api_key={REDACTED}"),
        ("--db postgresql://me:pw@db/x", f"--db postgresql://me:{REDACTED}@db/x"),
        ("--data=https://u:p@h/x?y", f"--data=https://u:{REDACTED}@h/x?y"),
        ("run hf_" + "aB" * 17, f"run {REDACTED}"),
        ("--db-password 12345", f"--db-password {REDACTED}"),
        ("-password hunter2", f"-password {REDACTED}"),
        ("-p hunter2", f"-p {REDACTED}"),
        ("-u me:hunter2", f"-u {REDACTED}"),
        ('--cfg={"token":"abc123"}', f'--cfg={{"token":"{REDACTED}"}}'),
        ("--url https://h/x?sig=abcdefg&n=1", f"--url https://h/x?sig={REDACTED}&n=1"),
    ],
)
def test_secret_arguments(words: str, kept: str) -> None:
    found = redact_arguments(["train.py", *words.split()])
    assert " ".join(found.words) == f"train.py {kept}"
    assert len(found.redacted) == 1


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens 4096 --num_tokens=10B --key-dim=64 --pin-memory true",
        "--pad-token <pad> --eos-token=</s> --auth none",
        "--token --lr 0.1",
        "--token= --tokenizer gpt2",
        "--cert /etc/ssl/cert.pem --data=https://host/path:with@signs",
        "--sort-key loss --metric.key=val/acc model.token_embedding=learned --session-name x --auth-type oauth",
        "--seed 1 steps=3 -m torch.distributed.run",
        "--max-tokens 20241231 --num-pass 20241231 --n-pass=2 --pass-rate 0.5 --bypass 12345678 --compass=12345678",
        "--image-token 32000 --eos-token-id 50256 --use-auth-token 1 --forward-pass 10000000 --lowpass 44100",
        "-p 29500 -p 48291735 -p5 -p bf16 -p 16-mixed -p configs/small.yaml -u -u host:29500",
        "--data.tokenizer=gpt2 model.key_dim=64 --resume out/3f786850e387550fdab836ed7e6dc881de23001b/step.pt",
    ],
)
def test_settings_are_no_secrets_whatever_they_are_called(words: str) -> None:
    found = redact_arguments(["train.py", *words.split()])
    assert found.words == ("train.py", *words.split()) and found.redacted == ()


def test_what_was_redacted_is_named_and_the_program_itself_never_is() -> None:
    found = redact_arguments(["secret=1/train.py", "--api-key", "abc", "x", "https://u:p@h"])
    assert found.words[0] == "secret=1/train.py"
    assert found.redacted == ("--api-key", "argument 4")
    assert redact_arguments([]).words == ()


def test_arguments_in_a_variable() -> None:
    assert looks_secret("TRAIN_ARGS", "--lr 0.1 --api-key abc")
    assert not looks_secret("TRAIN_ARGS", "--lr 0.1 --max-tokens 64")


TOKEN = "tok" + "4f9A" * 6


@pytest.mark.parametrize(
    "text",
    [
        f"401 for https://x/?access_token={TOKEN}",
        f"bad api key: {TOKEN}",
        f"{{'api_key': '{TOKEN}', 'lr': 0.1}}",
        f"token={TOKEN} was refused",
        f"ValueError: login failed: api_key={TOKEN}",
        f"machine host login me password {TOKEN}",
        f"cannot log in with password='{TOKEN}'",
        f"Cookie: session={TOKEN}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{TOKEN}\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_a_text_is_redacted_by_the_names_in_it(text: str) -> None:
    shown = redact_text(text)
    assert TOKEN not in shown and REDACTED in shown


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://me:hun@ter22x@git.host/r", f"https://me:{REDACTED}@git.host/r"),
        ("https://me:hun/t@er22x@git.host/r@v1", f"https://me:{REDACTED}@git.host/r@v1"),
        ("https://me:hunter2@host/path@v1?x=@y", f"https://me:{REDACTED}@host/path@v1?x=@y"),
        ("https://me:hunter2@host?x={y}@z", f"https://me:{REDACTED}@host?x={{y}}@z"),
        ("http://a:b/c://me:hunter2@host", f"http://a:b/c://me:{REDACTED}@host"),
    ],
)
def test_a_password_in_a_url_is_hidden_whole_and_nothing_else(text: str, kept: str) -> None:
    assert redact_text(text) == kept


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DB_PASS=hunter2x\n", "hunter2x"),
        ("A=1\nexport DB_PASS=opensesame\r\n", "opensesame"),
        ("DB_PASSWORD=opensesame", "opensesame"),
        ("MYSQL_PASS='48291734'", "48291734"),
        ("MYSQL_PASS=48291734", "48291734"),
        ("SMTP_AUTH=mailpw99", "mailpw99"),
        ("ADMIN_TOKEN=opensesame7", "opensesame7"),
        ("ACME_TOKEN=opensesame7", "opensesame7"),
        ("admin_token: opensesame7", "opensesame7"),
        ("[db]\nmysql_pass = 48291734", "48291734"),
        ('{"smtpPass": "opensesame", "port": 25}', "opensesame"),
        ('{"access_token": 9182736455}', "9182736455"),
        ('{"smtp":{"user":"bob","pass":"p4ssw0rdXX77"}}', "p4ssw0rdXX77"),
        ('{"user": "bob", "pass": "swordfish"}', "swordfish"),
        ("pwd: 'hunter2'", "hunter2"),
        ("log({'passwd': 'abc'})", "abc"),
        ('"{\\"pass\\": \\"x1y\\"}"', "x1y"),
        ("PASS=hunter2\n", "hunter2"),
        ('{"auths": {"host": {"auth":"dXNlcjpzZWNyZXRwYXNz"}}}', "dXNlcjpzZWNyZXRwYXNz"),
        ('PASSPHRASE = "correct horse battery staple"', "correct horse battery staple"),
        ("login(password='correct horse battery staple')", "correct horse battery staple"),
    ],
)
def test_a_short_secret_in_a_file_of_settings(text: str, value: str) -> None:
    assert redact_text(text) == text.replace(value, REDACTED)


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'token'",
        'Missing key(s) in state_dict: "module.layers.3.weight"',
        "Unexpected key: layers.0.weight, expected shape [1, 2]",
        "session timed out after 300 s; key = loss",
        "def login(password: str, token=None): return self.token == token",
        "password = getpass.getpass()\nsecret = os.environ['SECRET']\napi_key = args.api_key",
        "The secret: practice. Author: me. Bearer of news",
        "headers={'Authorization': f'Bearer {token}'}",
        "url = 'https://{user}:{password}@host'",
        "sha256:3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
        "tokens: 4096, key_dim: 64, auth: none",
        "max_tokens=20241231\nnum_pass=20241231\nn_pass = 2\npass_rate: 0.12345678",
        "bypass: 'x1234567'\ncompass='n1234567'",
        'pad_token = "<pad>"\neos_token_id: 50256\nMASK_TOKEN = "[MASK]"\nIMG_TOKEN = 151655\nforward_pass = "fwd1"',
        "DB_PASS=$DB_PASS\nDB_PASS=${X}\nDB_PASS=\nDB_PASS=none\nDB_PASS=<redacted>\nDB_PASS=changeme",
        "USE_AUTH_TOKEN=true",
        "DB_PASS = os.environ['DB_PASS']\nauth_token = os.environ.get('X')\nuse = True\nadmin_token: str = ''",
        'ACCESS_TOKEN = "access_token"\nSMTP_AUTH = "scram-sha-256"\nhttp_auth: kerberos\n"auth": "kerberos"',
        'password = "Enter your password"\nraise Error("password=" + x + " is bad")\nsecret="the secret of it"',
        'PWD=/work\n{"pwd": "/home/bob", "pass": true}\npwd: "src/model1"\npwd = "."\nPWD="C:\\\\work"',
        'these pass: all\nforward pass: 12ms\n{"pass": "forward"}\npass="bwd"\n"pass": "the first one"\npass: layer2',
        '"pass": "2"\n"pass": "<yours>"\n"pass": "$PASS"\n"pass": "no"\npass = pass_of(step)\n"pass": "failed"',
        "lowpass: 'butter44100'\nfusion_pass = 'post_grad2'\nclass_pass=3",
    ],
)
def test_prose_and_code_are_left_as_they_are(text: str) -> None:
    assert redact_text(text) == text


def test_known_values_go_wherever_they_stand() -> None:
    known = known_values({"DB_PW": TOKEN, "LANG": "C", "PASSWORD": "postgres"}, ["python", "--password", "s3cr3t!x"])
    assert known == ("postgres", "s3cr3t!x", TOKEN)
    assert worth_a_search(known) == ("s3cr3t!x", TOKEN)  # a word may stand anywhere by chance
    assert redact_text(f"a {TOKEN}b s3cr3t!xy", known) == f"a {REDACTED}b {REDACTED}y"
    assert known_values({"DB_PASS": "48291734", "PG_PASS": "4096", "MAX_TOKENS": "20241231"}, []) == ("48291734",)
    assert redact({"MINE": f"x{TOKEN}"}, known).redacted == ("MINE",)
    assert redact_arguments(["x", f"y{TOKEN}"], known).words == ("x", f"y{REDACTED}")


@pytest.mark.parametrize("value", ["swordfish", "pw-1x", "root", "Opensesame"])
def test_a_word_that_is_a_secret_goes_where_it_stands_by_itself(value: str) -> None:
    """Not as a part of another word or of a path, which everybody may hold; and a variable or an argument that a replay
    needs is left as it is."""
    known = known_values({"DB_PASSWORD": value}, [])
    assert known == (value,)
    for text in (f"login as me with {value}", f"'{value}', {value}.", f"({value}) {value}:"):
        assert redact_text(text, known) == text.replace(value, REDACTED)
    for text in (f"x{value}", f"{value}s", f"/home/{value}/x.py", f"{value}.py", f"a-{value}"):
        assert redact_text(text, known) == text
    assert redact({"DB_USER": value}, known).redacted == ()
    assert redact_arguments(["x", value], known).words == ("x", value)


def test_a_word_of_a_variable_that_only_names_a_secret_is_none() -> None:
    environment = {
        "GIT_CREDENTIAL_HELPER": "store",
        "SECRET_NAME": "prod",
        "MY_TOKEN": "letmein",
        "API_KEY1": "letmein1",
    }
    assert known_values(environment, ["x", "-p", "opensesame"]) == ("letmein", "opensesame")


@pytest.mark.parametrize("value", ["true", "4096", "0.5", "abc", "none"])
def test_what_everybody_says_is_searched_for_nowhere(value: str) -> None:
    assert known_values({"DB_PASSWORD": value}, []) == ()


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("sshpass -phunter2 ssh host", f"sshpass -p{REDACTED} ssh host"),
        ("mysql -u me -pletmein db", f"mysql -u me -p{REDACTED} db"),
        ("/usr/bin/mysqldump -p5 db", f"/usr/bin/mysqldump -p{REDACTED} db"),
        ("-pS3cret99", f"-p{REDACTED}"),
        ("-phunter2!", f"-p{REDACTED}"),
    ],
)
def test_a_password_attached_to_its_option(words: str, kept: str) -> None:
    found = redact_arguments(["train.py", *words.split()])
    assert (" ".join(found.words), found.redacted) == (f"train.py {kept}", ("-p",))
    assert looks_secret("COMMAND", words)


@pytest.mark.parametrize(
    "word",
    [
        "-parallel", "-path=x", "-p5", "-p2p", "-pbf16", "-pipeline4", "-p16-mixed", "-pbfloat16", "-profile=Trace1",
        "-pconfigs/Small1.yaml", "-pSmall1.yaml", "-port29500", "-precision", "-p0.5", "-pthread", "-prompt2",
    ],
)  # fmt: skip
def test_an_option_that_begins_as_p_does_is_no_password(word: str) -> None:
    assert redact_arguments(["train.py", word]).words == ("train.py", word)


@pytest.mark.parametrize(
    ("redacted", "text", "is_same"),
    [
        (f"E: login of {REDACTED}", "E: login of me", True),
        (f"E: {REDACTED} at {REDACTED}: no", "E: a at b: no", True),
        (f"E: {REDACTED} at {REDACTED}", "E: a b", False),
        (f"E: a {REDACTED}", "E: a ", False),
        (f"E: {REDACTED}", "F: a", False),
        (f"E: {REDACTED} x", "E: a y", False),
        (f"{REDACTED}aa", "aa", False),
        ("E: a", "E: a", True),
        ("E: a", "E: b", False),
    ],
)
def test_a_text_is_known_again_by_what_was_left_of_it(redacted: str, text: str, is_same: bool) -> None:
    assert is_redacted_of(redacted, text) is is_same


@pytest.mark.parametrize("name", ["token", "hf_token", "auth", "session", "smtp_pass", "password", "api_key"])
def test_what_was_masked_is_no_secret_any_more(name: str) -> None:
    assert not is_secret_setting(name, "*" * 16)
    assert looks_secret(name, "s" + "*" * 16)


@pytest.mark.parametrize(
    "text",
    [
        "<token>{token}</token>", "<maxtoken>...</maxtoken>", "name: tokens\nvalue: 5", "key-frames", "fw_pass",
        "curl -u host", "mysql -p 3306", "mysqldump --protocol tcp", "fw_hidden_states", "NRA-2", "dp.pt.x", "xai-v2",
    ],
)  # fmt: skip
def test_what_only_looks_like_those_is_none(text: str) -> None:
    assert redact_text(text) == text
