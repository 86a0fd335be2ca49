#!/usr/bin/python3
"""The command line as scripts see it: exit codes, channels, JSON keys, files.

usage: cli_test.py TERRACE_CLI DEMO_MODEL [TestClass[.test]]
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CLI = DEMO = ""

RUN_KEYS = {"text", "prompt_ids", "ids", "stop_reason", "seed", "arith_version", "model_identity", "logits_hash",
            "load_seconds", "prefill", "decode", "speculation", "experts", "memory", "faults", "warnings"}
RUN_GROUPS = {"prefill": {"tokens", "reused", "seconds", "tokens_per_second"},
              "decode": {"tokens", "seconds", "tokens_per_second", "first_token_seconds"},
              "speculation": {"depth", "drafted", "accepted", "forwards"},
              "experts": {"lookups", "hits_ram", "hits_vram", "misses", "bytes_read", "visible_wait_seconds"},
              "memory": {"budget", "planned_peak", "measured_peak", "by_class"},
              "faults": {"injected", "repaired"}}


def cli(*args, stdin=""):
    return subprocess.run([CLI, *args], input=stdin, capture_output=True, text=True, timeout=100)


def run_json(*args):
    done = cli("run", DEMO, "--json", "--temperature", "0", *args)
    return done, json.loads(done.stdout)


class Manners(unittest.TestCase):
    def wrong_use(self, *args, names=""):
        done = cli(*args)
        self.assertEqual(done.returncode, 2, args)
        self.assertEqual(done.stdout, "", "stdout carries the result only")
        self.assertIn(names, done.stderr)

    def test_what_is_no_text_file_is_refused_with_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            deep = os.path.join(folder, "deep.json")
            with open(deep, "w", encoding="utf-8") as file:
                file.write("[" * 200000 + "]" * 200000)
            for args in (("run", DEMO, "--prompt", "@" + folder), ("tokenize", DEMO, "--text", "@" + folder),
                         ("render", DEMO, "--messages", folder), ("render", DEMO, "--messages", deep),
                         ("run", DEMO, "--messages", deep)):
                done = cli(*args)
                self.assertIn(done.returncode, (1, 2), args)
                self.assertIn("error:", done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_dump_that_cannot_be_written_is_refused_before_the_answer(self):
        done = cli("run", DEMO, "--prompt", "Hi", "--json", "--dump", "/nowhere/at/all")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error", json.loads(done.stdout))

    def test_a_lost_result_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([CLI, "run", DEMO, "--prompt", "Hi", "--n", "3"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be written", done.stderr)

    def test_every_command_has_help_with_two_examples(self):
        overview = cli("--help")
        self.assertEqual(overview.returncode, 0)
        for command in ("run", "chat", "tokenize", "render", "inspect", "make-model"):
            self.assertIn(command, overview.stdout)
            done = cli(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertGreaterEqual(done.stdout.count(f"terrace-cli {command}"), 2, command)

    def test_version(self):
        done = cli("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"terrace-cli \d+\.\d+\.\d+, arithmetic version 1")

    def test_misspelt_names_are_answered_with_the_nearest(self):
        self.wrong_use("rn", names='"run"')
        self.wrong_use("tokenise", names='"tokenize"')
        self.wrong_use("run", DEMO, "--promt", "hi", names="--prompt")
        self.wrong_use("run", DEMO, "--prompt", "hi", "--temprature=1", names="--temperature")

    def test_no_command_and_nonsense(self):
        self.wrong_use()
        self.wrong_use("xqzzy", names="xqzzy")

    def test_options_that_have_no_effect_here_are_refused(self):
        for option in (["--device", "cuda"], ["--dense", "device"], ["--io", "uring"], ["--vram", "0=1G"],
                       ["--model-copy", "/x"], ["--experts", "2"], ["--expert-mass", "0.9"], ["--trace", "x"],
                       ["--history", "freeze"], ["--mode", "mirror"]):
            self.wrong_use("run", DEMO, "--prompt", "hi", *option, names=option[0])

    def test_options_that_do_not_go_together_are_refused(self):
        self.wrong_use("run", DEMO)
        self.wrong_use("run", DEMO, "--prompt", "a", "--ids", "1")
        self.wrong_use("run", DEMO, "--ids", "1", "--system", "x")
        self.wrong_use("run", DEMO, "--ids", "1,x", names="1,x"[2:])
        self.wrong_use("run", DEMO, "--ids", "1", "--latent-eps", "1e-6", names="eps")
        self.wrong_use("run", DEMO, "--ids", "1", "--isa", "sse9", names="sse9")
        self.wrong_use("run", DEMO, "--ids", "1", "--ram", "much", names="much")
        self.wrong_use("run", DEMO, "--ids", "1", "--slots", "1", names="slots")
        self.wrong_use("run", DEMO, "--ids", "1", "--inject", "disk.read:melt@3", names="melt")

    def test_an_option_given_twice_counts_the_last_time(self):
        done, answer = run_json("--ids", "5,6,7", "--n", "9", "--n", "2", "--ignore-eos")
        self.assertEqual(len(answer["ids"]), 2)

    def test_failures_as_json(self):
        for status, code, args in ((2, "wrong_use", ["run", "--json", DEMO]),
                                   (2, "wrong_use", ["run", "--json", DEMO, "--bogus"]),
                                   (1, "not_found", ["run", "/no/such/model", "--ids", "1", "--json"]),
                                   (1, "not_found", ["inspect", "/no/such/model", "--json"]),
                                   (3, "too_large", ["run", DEMO, "--ids", "1", "--ram", "1M", "--json"])):
            done = cli(*args)
            self.assertEqual(done.returncode, status, args)
            error = json.loads(done.stdout)["error"]
            self.assertEqual(set(error), {"code", "message", "context", "next_step"})
            self.assertEqual(error["code"], code)
            self.assertTrue(error["message"])

    def test_failures_as_text_go_to_stderr(self):
        done = cli("run", "/no/such/model", "--ids", "1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/no/such/model", done.stderr)


class Run(unittest.TestCase):
    def test_json_has_exactly_the_documented_keys(self):
        done, answer = run_json("--prompt", "What is Terrace?", "--n", "12", "--slots", "9")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(set(answer), RUN_KEYS)
        for group, keys in RUN_GROUPS.items():
            self.assertEqual(set(answer[group]), keys)
        self.assertRegex(answer["logits_hash"], "^[0-9a-f]{16}$")
        self.assertEqual(answer["prefill"]["tokens"], len(answer["prompt_ids"]))
        self.assertEqual(answer["arith_version"], 1)
        self.assertEqual(answer["experts"]["lookups"], answer["experts"]["hits_ram"] + answer["experts"]["misses"])
        self.assertGreater(answer["experts"]["misses"], 0, "nine slots are fewer than the experts")
        self.assertEqual(sum(answer["memory"]["by_class"].values()), answer["memory"]["planned_peak"])

    def test_stdout_is_the_answer_and_nothing_else(self):
        _, answer = run_json("--prompt", "Hello!", "--n", "20")
        done = cli("run", DEMO, "--prompt", "Hello!", "--n", "20", "--temperature", "0", "--verbose")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.rstrip("\n"), answer["text"].rstrip("\n"))
        quiet = cli("run", DEMO, "--prompt", "Hello!", "--n", "20", "--temperature", "0", "--quiet")
        self.assertEqual((quiet.stdout, quiet.stderr), (done.stdout, ""))

    def test_one_prompt_in_four_forms(self):
        _, by_text = run_json("--prompt", "Hello!", "--n", "3")
        by_stdin = json.loads(
            cli("run", DEMO, "--json", "--temperature", "0", "--prompt", "-", "--n", "3", stdin="Hello!").stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "messages.json")
            with open(path, "w") as f:
                json.dump([{"role": "user", "content": "Hello!"}], f)
            _, by_messages = run_json("--messages", path, "--n", "3")
        _, by_ids = run_json("--ids", ",".join(map(str, by_text["prompt_ids"])), "--n", "3")
        for other in (by_stdin, by_messages, by_ids):
            self.assertEqual((other["prompt_ids"], other["ids"], other["logits_hash"]),
                             (by_text["prompt_ids"], by_text["ids"], by_text["logits_hash"]))

    def test_the_seed_repeats_an_answer(self):
        args = ["run", DEMO, "--json", "--prompt", "Tell me a story.", "--n", "20", "--temperature", "1"]
        first = json.loads(cli(*args).stdout)
        again = json.loads(cli(*args, "--seed", str(first["seed"]), "--draft", "off", "--isa", "scalar").stdout)
        self.assertEqual(first["ids"], again["ids"])
        self.assertEqual(first["logits_hash"], again["logits_hash"])

    def test_stop_strings_and_reasons(self):
        _, whole = run_json("--prompt", "Who are you?", "--n", "12")
        self.assertEqual(whole["stop_reason"], "length")
        word = whole["text"].split()[2]
        _, cut = run_json("--prompt", "Who are you?", "--n", "12", "--stop", "never said", "--stop", word)
        self.assertEqual(cut["stop_reason"], "stop")
        self.assertEqual(cut["text"], whole["text"][:whole["text"].index(word)])
        _, full = run_json("--prompt", "Who are you?")
        self.assertEqual(full["stop_reason"], "eos")

    def test_faults_of_the_disk_are_counted(self):
        _, plain = run_json("--prompt", "Hi", "--n", "5", "--slots", "9")
        done, hurt = run_json("--prompt", "Hi", "--n", "5", "--slots", "9", "--inject", "disk.read:short@3")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(hurt["logits_hash"], plain["logits_hash"])
        self.assertEqual(hurt["faults"], {"injected": 1, "repaired": 1})

    def test_dump_has_the_documented_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "dump.safetensors")
            done, answer = run_json("--ids", "2014,2016,2019,661", "--n", "3", "--draft", "3", "--ignore-eos",
                                    "--dump", path)
            self.assertEqual(done.returncode, 0)
            with open(path, "rb") as f:
                data = f.read()
            self.assertEqual(os.listdir(folder), ["dump.safetensors"])
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        t, v, h, layers, moe, k, full = 7, 2048, 256, 6, 5, 4, 4
        self.assertEqual({name: (a["dtype"], a["shape"]) for name, a in header.items()}, {
            "input_ids": ("I32", [t]), "logits": ("F32", [t, v]), "hidden": ("F32", [layers + 1, t, h]),
            "final_norm": ("F32", [t, h]), "router_ids": ("I32", [moe, t, k]), "router_weights": ("F32", [moe, t, k]),
            "selected": ("U8", [full, t, t]), "mtp_logits": ("F32", [t, v]), "mtp_chain_logits": ("F32", [3, v])})

    def test_ctrl_c_ends_the_answer_and_prints_what_there_is(self):
        process = subprocess.Popen([CLI, "run", DEMO, "--prompt", "Tell me a story.", "--n", "4000", "--ignore-eos",
                                    "--temperature", "0", "--isa", "scalar"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        first = process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        rest, _ = process.communicate(timeout=20)
        self.assertLess(time.monotonic() - asked, 5)
        self.assertEqual(process.returncode, 130)
        self.assertTrue((first + rest).decode())


class Tools(unittest.TestCase):
    def test_tokenize_there_and_back(self):
        text = "Grüße, <|user|> 😀\n"
        ids = cli("tokenize", DEMO, "--jsonl", stdin=json.dumps(text) + "\n" + json.dumps("") + "\n")
        self.assertEqual(ids.returncode, 0)
        lines = [json.loads(line) for line in ids.stdout.splitlines()]
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[1], [])
        back = cli("tokenize", DEMO, "--jsonl", "--decode", stdin=json.dumps(lines[0]) + "\n")
        self.assertEqual(json.loads(back.stdout), text)

    def test_special_tokens_only_when_asked_for(self):
        raw = json.loads(cli("tokenize", DEMO, "--jsonl", "--mode", "raw", stdin='"<|user|>"\n').stdout)
        special = json.loads(cli("tokenize", DEMO, "--jsonl", "--mode", "special", stdin='"<|user|>"\n').stdout)
        self.assertGreater(len(raw), 1)
        self.assertEqual(len(special), 1)

    def test_render_jsonl_answers_every_line(self):
        good = json.dumps({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True})
        done = cli("render", DEMO, "--jsonl", stdin=good + "\n{]\n" + good + "\n")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(lines), 3)
        self.assertIn("hi", lines[0]["text"])
        self.assertEqual(set(lines[1]["error"]), {"class", "message", "line", "column"})
        self.assertEqual(lines[2], lines[0])

    def test_inspect_names_the_model(self):
        done = cli("inspect", DEMO, "--json")
        self.assertEqual(done.returncode, 0)
        facts = json.loads(done.stdout)
        self.assertEqual((facts["model_type"], facts["layers"], facts["has_mtp"]), ("glm_moe_dsa", 6, True))

    def test_a_made_model_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made")
            done = cli("make-model", path, "--preset", "tiny", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout)
            answer = json.loads(cli("run", path, "--prompt", "hi", "--n", "4", "--ignore-eos", "--json", "--temperature",
                                    "0").stdout)
            self.assertEqual(len(answer["ids"]), 4)
            self.assertNotEqual(cli("make-model", path, "--preset", "tiny").returncode, 0, "nothing is written over")


if __name__ == "__main__":
    CLI, DEMO = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
