# SPDX-License-Identifier: Apache-2.0
"""`lockstep launch`: what its processes get, what is printed of them, and how all of them end."""
import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
import termios
import time
import uuid

from support import BAD_INPUT, DONE, FAILED, INTERRUPTED, LOCKSTEP, PEER_LOST, TERMINATED, USAGE, ProgramTest, main

FOREVER = "while :; do sleep 0.05; done"
# A worker that ends when a file is there.
UNTIL = "while [ ! -e %s ]; do sleep 0.02; done; "


class LaunchTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.mark = "LOCKSTEP_TEST_MARK=" + uuid.uuid4().hex  # in the environment of every process of this test
        self.environment = dict(os.environ, **dict([self.mark.split("=")]))
        self.addCleanup(self.end_survivors)

    def survivors(self):
        """Processes of this test that run, without this one."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self.mark.encode() in file.read() and int(pid) != os.getpid():
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def end_survivors(self):
        for pid in self.survivors():
            os.kill(pid, signal.SIGKILL)

    def nothing_is_left(self):
        self.wait_for(lambda: not self.survivors(), 5)

    def launch(self, count, script, *options, timeout=60, elastic=None, **more):
        """Runs a shell script in so many workers; returns what subprocess.run does, as bytes."""
        words = ["sh", "-c", script, *([f"--elastic={elastic}"] if elastic else [])]
        done = subprocess.run([LOCKSTEP, "launch", f"-n{count}", *options, "--", *words], cwd=self.folder,
                              env=self.environment, timeout=timeout, capture_output=True, **more)
        self.nothing_is_left()
        return done

    def start(self, count, script, *options, **more):
        process = subprocess.Popen([LOCKSTEP, "launch", f"-n{count}", *options, "--", "sh", "-c", script], cwd=self.folder,
                                   env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.addCleanup(process.kill)
        return process

    def ready(self, *names):
        """Waits until the workers have made these files, and returns what they wrote into them."""
        found = []
        for name in names:
            self.wait_for(lambda: os.path.exists(self.path(name)) and os.path.getsize(self.path(name)))
            with open(self.path(name)) as file:
                found.append(file.read().strip())
        return found


class Environment(LaunchTest):
    def test_every_process_finds_its_place(self):
        done = self.launch(3, 'env | grep ^LOCKSTEP_ | grep -v _TEST_ > "place.$LOCKSTEP_ROLE.$LOCKSTEP_RANK"; cat', "--servers=2",
                           stdin=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (DONE, b"", b""))
        places = {}
        for role, count in (("worker", 3), ("server", 2)):
            for number in range(count):
                with open(self.path(f"place.{role}.{number}")) as file:
                    places[role, number] = dict(line.rstrip("\n").split("=", 1) for line in file)
        for (role, number), place in places.items():
            inherited = {name for name in os.environ if name.startswith("LOCKSTEP_")}
            mine = {name: value for name, value in place.items() if name not in inherited}
            secret, address = mine.pop("LOCKSTEP_SECRET"), mine.pop("LOCKSTEP_ADDRESS")
            self.assertRegex(secret, "^[0-9a-f]{64}$")
            self.assertRegex(address, r"^127\.0\.0\.1:[0-9]+$")
            self.assertEqual((secret, address), (places["worker", 0]["LOCKSTEP_SECRET"], places["worker", 0]["LOCKSTEP_ADDRESS"]))
            self.assertEqual("LOCKSTEP_LISTEN_FD" in mine, role == "server" or number == 0)
            mine.pop("LOCKSTEP_LISTEN_FD", None)
            self.assertRegex(mine["LOCKSTEP_SERVER_ADDRESSES"], r"^127\.0\.0\.1:[0-9]+,127\.0\.0\.1:[0-9]+$")
            self.assertEqual(mine.pop("LOCKSTEP_SERVER_ADDRESSES"), places["worker", 0]["LOCKSTEP_SERVER_ADDRESSES"])
            self.assertRegex(mine.pop("LOCKSTEP_JOB"), "^launch-[0-9]+$")
            self.assertFalse(os.path.exists(mine.pop("LOCKSTEP_SERVER_FOLDER")))  # the launch has ended
            self.assertEqual(mine, {"LOCKSTEP_ROLE": role, "LOCKSTEP_RANK": str(number), "LOCKSTEP_WORLD_SIZE": "3",
                                    "LOCKSTEP_LOCAL_RANK": str(number), "LOCKSTEP_LOCAL_WORLD_SIZE": "3" if role == "worker" else "2",
                                    "LOCKSTEP_SERVERS": "2", "LOCKSTEP_RESTART_COUNT": "0"})

    def test_what_an_outer_launch_has_set_does_not_count(self):
        self.environment.update(LOCKSTEP_RANK="9", LOCKSTEP_WORLD_SIZE="12", LOCKSTEP_LISTEN_FD="99", LOCKSTEP_SECRET="known",
                                LOCKSTEP_SECRET_FILE="/nowhere", LOCKSTEP_ROLE="server", LOCKSTEP_SERVER_ADDRESSES="here:1", LOCKSTEP_JOIN="1")
        done = self.launch(2, 'echo $LOCKSTEP_SERVER_ADDRESSES$LOCKSTEP_JOIN $LOCKSTEP_RANK/$LOCKSTEP_WORLD_SIZE $LOCKSTEP_ROLE ${LOCKSTEP_SECRET_FILE-none}; '
                           '[ $LOCKSTEP_SECRET != known ] && [ "$LOCKSTEP_LISTEN_FD" != 99 ]', "--prefix=never")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(sorted(done.stdout.decode().splitlines()), ["0/2 worker none", "1/2 worker none"])

    def test_worker_0_accepts_at_the_address_also_beside_another_launch(self):
        with open(self.path("talk.py"), "w") as file:
            file.write('''
import os, socket, sys
rank, address = int(os.environ["LOCKSTEP_RANK"]), os.environ["LOCKSTEP_ADDRESS"].split(":")
if rank == 0:
    peer = socket.socket(fileno=int(os.environ["LOCKSTEP_LISTEN_FD"])).accept()[0]
    print(sys.argv[1], peer.recv(100).decode())
else:
    socket.create_connection(address, 10).send(b"from " + sys.argv[1].encode())
''')
        both = [subprocess.Popen([LOCKSTEP, "launch", "-n", "2", "--", sys.executable, "talk.py", name], cwd=self.folder, text=True,
                                 env=self.environment, stdout=subprocess.PIPE) for name in ("one", "two")]
        outputs = [process.communicate(timeout=60)[0] for process in both]
        self.assertEqual([process.returncode for process in both], [DONE, DONE])
        self.assertEqual(outputs, ["one from one\n", "two from two\n"])

    def test_where_worker_0_has_ended_nobody_listens(self):
        with open(self.path("late.py"), "w") as file:
            file.write('''
import errno, os, socket, sys, time
if os.environ["LOCKSTEP_RANK"] == "0":
    sys.exit(0)
host, port = os.environ["LOCKSTEP_ADDRESS"].split(":")
for attempt in range(200):  # worker 0 may not have ended yet
    with socket.socket() as peer:
        if peer.connect_ex((host, int(port))) == errno.ECONNREFUSED:
            sys.exit(0)
    time.sleep(0.02)
sys.exit("somebody listens")
''')
        done = subprocess.run([LOCKSTEP, "launch", "-n2", sys.executable, "late.py"], cwd=self.folder, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, DONE)

    def test_nothing_is_open_but_its_outputs(self):
        """And the socket of worker 0; also where this program has none of its own three."""
        with open(self.path("open.py"), "w") as file:
            file.write('''
import os, stat
def kind(fd):
    mode = os.fstat(fd).st_mode
    return "socket" if stat.S_ISSOCK(mode) else "pipe" if stat.S_ISFIFO(mode) else os.readlink(f"/proc/self/fd/{fd}")
found = {}
for fd in range(1000):
    try:
        found[fd] = kind(fd)
    except OSError:
        pass
listener = int(os.environ.get("LOCKSTEP_LISTEN_FD", -1))
with open("open." + os.environ["LOCKSTEP_RANK"], "w") as file:
    file.write(str([one for one in sorted(found.items()) if one[0] != listener])
               + found.get(listener, "no listener"))
''')
        usual = [(0, "/dev/null"), (1, "pipe"), (2, "pipe")]
        for closing in ("", "<&-", ">&-", "<&- >&- 2>&-"):
            with self.subTest(closing=closing):
                done = subprocess.run(["sh", "-c", f"exec {LOCKSTEP} launch -n2 {sys.executable} open.py {closing}"], cwd=self.folder,
                                      env=self.environment, capture_output=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (DONE, b"", b""))
                self.assertEqual(self.ready("open.0", "open.1"), [f"{usual}socket", f"{usual}no listener"])
                os.unlink(self.path("open.0"))
                os.unlink(self.path("open.1"))

    def test_a_subcommand_is_run_by_this_program(self):
        self.environment["PATH"] = "/nowhere"
        done = subprocess.run([LOCKSTEP, "launch", "-n2", "--", "summary", "--model=mlp"], env=self.environment, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, DONE, done.stderr)
        lines = done.stdout.splitlines()
        chief = [line for line in lines if not line.startswith("[1] ")]
        self.assertEqual(chief, [line[4:] for line in lines if line.startswith("[1] ")])
        self.assertIn("mlp", chief[0])

    def test_the_secret_is_on_no_command_line_and_not_printed(self):
        process = self.start(2, "echo $LOCKSTEP_SECRET > secret.$LOCKSTEP_RANK; " + UNTIL % "end")
        secret, same = self.ready("secret.0", "secret.1")
        self.assertEqual(secret, same)
        seen = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    self.assertNotIn(secret.encode(), file.read())
                seen += 1
            except OSError:
                pass
        self.assertGreater(seen, 3)
        open(self.path("end"), "w").close()
        out, err = process.communicate(timeout=60)
        self.assertNotIn(secret.encode(), out + err)
        self.assertEqual(process.returncode, DONE)


class Output(LaunchTest):
    def test_lines_begin_with_their_worker(self):
        script = "echo out $LOCKSTEP_RANK; echo err $LOCKSTEP_RANK >&2"
        for prefix, out, err in (
            ("auto", {"out 0", "[1] out 1", "[server 0] out 0"}, {"[0] err 0", "[1] err 1", "[server 0] err 0"}),
            ("always", {"[0] out 0", "[1] out 1", "[server 0] out 0"}, {"[0] err 0", "[1] err 1", "[server 0] err 0"}),
            ("never", {"out 0", "out 1"}, {"err 0", "err 1"}),
        ):
            with self.subTest(prefix=prefix):
                done = self.launch(2, script, "--prefix=" + prefix, "--servers=1")
                self.assertEqual(done.returncode, DONE)
                self.assertEqual(set(done.stdout.decode().splitlines()), out)
                self.assertEqual(set(done.stderr.decode().splitlines()), err)
        done = self.launch(1, script)
        self.assertEqual((done.stdout, done.stderr), (b"out 0\n", b"err 0\n"))

    def test_an_equal_error_of_several_workers_is_printed_once(self):
        error, warning = "lockstep: error: ring: no", "lockstep: warning: odd"
        together = "touch here.$LOCKSTEP_RANK; " + "".join(UNTIL % f"here.{rank}" for rank in range(4))
        said = together + f"[ $LOCKSTEP_RANK = 1 ] && own=1; echo '{error}'$own >&2; [ $own ] || echo '{warning}' >&2; exit 3"
        for prefix, expected in (("auto", [f"[0,2-3] {warning}", f"[0,2-3] {error}", f"[1] {error}1"]),
                                 ("never", 3 * [error] + 3 * [warning] + [error + "1"])):
            with self.subTest(prefix=prefix):
                done = self.launch(4, said, "--prefix=" + prefix)
                self.assertEqual(done.returncode, 3)
                lines = done.stderr.decode().splitlines()
                self.assertEqual(sorted(line for line in lines if line.startswith("[") or ": launch: " not in line and line[0] == "l"),
                                 sorted(expected))
                self.assertRegex("\n".join(lines), r"lockstep: error: launch: worker \d ended with exit code 3 after \d+\.\d s")
        done = self.launch(2, together + f"echo '{error}' >&2; sleep 0.5; exit 3")  # a line that is printed above is not printed again
        self.assertRegex(done.stderr.decode(), r"\A\[0-1\] lockstep: error: ring: no\nlockstep: error: launch: worker \d ended with exit code 3 after [^;]*\n\Z")
        done = self.launch(2, f"echo '{error}' >&2; echo then >&2; exit 3")  # order
        self.assertRegex(done.stderr.decode(), r"(?s)\A(\[[01-]+\] lockstep: error.*\[[01]\] then\n.*)its last lines:\n  \| lockstep: error: ring: no\n  \| then\n")

    def test_binary_output_of_worker_0_arrives_as_it_is(self):
        data = os.urandom(700_000).replace(b"\n", b" ") + b"\n" + os.urandom(300_000) + b"the end has no newline"
        with open(self.path("data"), "wb") as file:
            file.write(data)
        for count in (1, 2):
            done = self.launch(count, "[ $LOCKSTEP_RANK = 1 ] || cat data")
            self.assertEqual(done.returncode, DONE)
            self.assertTrue(done.stdout == data, "is not what was printed")
        with open(self.path("copy"), "wb") as copy:
            subprocess.run([LOCKSTEP, "launch", "-n1", "cat", "data"], cwd=self.folder, stdout=copy, timeout=60, check=True)
        with open(self.path("copy"), "rb") as copy:
            self.assertTrue(copy.read() == data, "is not what was printed")

    def test_lines_of_all_lengths_stay_whole(self):
        with open(self.path("flood.py"), "w") as file:
            file.write('''
import os, random, sys
rank = int(os.environ["LOCKSTEP_RANK"])
numbers = random.Random(rank)
letter = "abcd"[rank]
for i in range(1500):
    length = 60_000 if i % 500 == 7 else numbers.choice((0, 1, 10, 80, 4000))
    stream = sys.stderr if i % 3 == 0 else sys.stdout
    stream.write(f"{i} " + letter * length + chr(10))
    if i % 10 == 0:
        stream.flush()
print(letter * 10, end="")
''')
        expected = {}
        import random
        for rank in range(4):
            numbers, letter = random.Random(rank), "abcd"[rank]
            lines = [[], []]
            for i in range(1500):
                length = 60_000 if i % 500 == 7 else numbers.choice((0, 1, 10, 80, 4000))
                lines[i % 3 == 0].append(f"[{rank}] {i} " + letter * length)
            lines[0].append(f"[{rank}] " + letter * 10)
            expected[rank] = lines
        for together in (False, True):
            with self.subTest(together=together):
                done = subprocess.run([LOCKSTEP, "launch", "-n4", "--prefix=always", sys.executable, "flood.py"], cwd=self.folder,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT if together else subprocess.PIPE, text=True,
                                      timeout=60)
                self.assertEqual(done.returncode, DONE)
                printed = [done.stdout.splitlines(), (done.stdout if together else done.stderr).splitlines()]
                for rank in range(4):
                    for error in (False, True):
                        mine = [line for line in printed[error] if line.startswith(f"[{rank}] ")]
                        wanted = expected[rank][error]
                        if together:
                            order = {line: at for at, line in enumerate(wanted)}
                            mine = [line for line in mine if line in order]
                        self.assertTrue(mine == wanted, f"worker {rank}: lines are missing, broken or out of order")
                self.assertEqual(len(printed[0]) + (0 if together else len(printed[1])), 4 * 1501)

    def test_a_long_line_that_gets_stuck_holds_nobody_up(self):
        done = self.launch(2, "if [ $LOCKSTEP_RANK = 0 ]; then head -c 100000 /dev/zero | tr '\\0' x; " + UNTIL % "end" + "echo y; "
                           "else sleep 0.3; head -c 3000 /dev/zero | tr '\\0' z; echo; sleep 0.1; touch end; fi", "--prefix=always")
        self.assertEqual(done.returncode, DONE)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(sorted(set(line[:5] for line in lines)), ["[0] x", "[1] z"])
        self.assertEqual("".join(line[4:] for line in lines if line.startswith("[0]")), "x" * 100000 + "y")

    def test_nothing_is_lost_where_the_reader_is_slow(self):
        process = self.start(3, "yes $LOCKSTEP_RANK | head -n 400000")
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (DONE, b""))
        for line, count in ((b"0", 400000), (b"[1] 1", 400000), (b"[2] 2", 400000)):
            self.assertEqual(out.split(b"\n").count(line), count)

    def test_where_the_reader_stops_the_workers_do_not(self):
        process = self.start(2, 'yes | head -n 50000; echo done > end.$LOCKSTEP_RANK')
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(60), FAILED)
        self.assertEqual(err, b"lockstep: error: launch: cannot write to standard output: Broken pipe\n")
        self.ready("end.0", "end.1")

    def test_who_closes_its_output_runs_on(self):
        done = self.launch(2, "echo early; exec 1>&- 2>&-; sleep 0.3; exit $((LOCKSTEP_RANK * 3))")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stdout.decode().splitlines().count("[1] early"), 1)

    def test_on_a_terminal_worker_0_has_one_and_its_bar_makes_room(self):
        script = ('if [ $LOCKSTEP_RANK = 0 ]; then [ -t 1 ] || exit 9; stty size <&1 > size; '
                  'printf "\\r\\033[K1/10 [=>...]"; ' + UNTIL % "one" + 'printf "\\r\\033[K2/10 [==>..]"; ' + UNTIL % "two" + 'echo " done"; '
                  'else [ -t 1 ] && exit 8; sleep 0.3; echo hello; sleep 0.3; touch one; sleep 0.3; echo help >&2; sleep 0.3; touch two; fi')
        shown = self.on_terminal("launch", "-n2", "--", "sh", "-c", script, columns=60, cwd=self.folder, stderr=subprocess.STDOUT,
                                 environment=dict(self.environment, TERM="xterm"))
        self.assertEqual(self.ready("size"), ["24 60"])
        wipe = b"\r\x1b[K"
        self.assertEqual(shown, wipe + b"1/10 [=>...]" + wipe + b"[1] hello\r\n" + wipe + b"1/10 [=>...]"
                         + wipe + b"2/10 [==>..]" + wipe + b"[1] help\r\n" + wipe + b"2/10 [==>..] done\r\n")


class MuchOutput(LaunchTest):
    def test_a_gigabyte_passes_through_little_memory(self):
        bytes_of_each = 500_000_000
        process = self.start(2, f"yes a line of worker $LOCKSTEP_RANK | head -c {bytes_of_each}", "--prefix=never")
        got, most = 0, 0
        while part := process.stdout.read(1 << 20):
            got += len(part)
            if got % 32 == 0 or not most:
                with open(f"/proc/{process.pid}/status") as file:
                    most = max(most, int(re.search(r"VmRSS:\s*(\d+)", file.read()).group(1)))
        self.assertEqual((process.wait(60), process.stderr.read()), (DONE, b""))
        self.assertIn(got, range(2 * bytes_of_each, 2 * bytes_of_each + 2))  # where both end without a newline, one is added
        self.assertLess(most, 64 << 10)  # KiB


class Failure(LaunchTest):
    def test_the_code_of_the_first_that_failed(self):
        done = self.launch(3, f"[ $LOCKSTEP_RANK = 1 ] && {{ echo what went wrong >&2; exit 7; }}; {FOREVER}", "--failure-grace=0.3")
        self.assertEqual(done.returncode, 7)
        err = done.stderr.decode()
        self.assertRegex(err, r"lockstep: warning: launch: worker 1 ended with exit code 7 after \d+\.\d s; the others have 0\.3 s to end\n")
        self.assertIn("lockstep: warning: launch: worker 2 has not ended by itself: it gets SIGTERM\n", err)
        self.assertRegex(err, r"lockstep: error: launch: worker 1 ended with exit code 7 after \d+\.\d s; its last lines:\n"
                              r"  \| what went wrong\n$")

    def test_who_ends_early_with_0_is_no_failure(self):
        done = self.launch(3, "[ $LOCKSTEP_RANK = 0 ] || sleep 0.3; echo $LOCKSTEP_RANK", "--prefix=never")
        self.assertEqual((done.returncode, done.stderr), (DONE, b""))
        self.assertEqual(sorted(done.stdout), sorted(b"0\n1\n2\n"))

    def test_one_that_is_killed_is_the_cause_and_the_others_say_that_they_lost_it(self):
        others = UNTIL % "dead" + "echo lost worker 2 >&2; exit 5"
        done = self.launch(4, "[ $LOCKSTEP_RANK = 2 ] && { echo ready; echo steps >&2; touch dead; sleep 0.05; kill -9 $$; }; " + others)
        self.assertEqual(done.returncode, PEER_LOST)
        err = done.stderr.decode()
        self.assertEqual(err.count("lost worker 2\n"), 3)
        self.assertRegex(err, r"lockstep: error: launch: worker 2 was killed by SIGKILL after \d+\.\d s; its last lines:\n  \| steps\n$")

    def test_what_only_follows_is_not_the_cause(self):
        """Peers see a closed connection before the kernel has ended a large process."""
        for what, code, said in (("kill -SEGV $$", PEER_LOST, "worker 1 was killed by SIGSEGV"), ("exit 3", 3, "worker 1 ended with exit code 3")):
            with self.subTest(what=what):
                done = self.launch(2, f"[ $LOCKSTEP_RANK = 0 ] && exit 5; sleep 0.3; {what}")
                self.assertEqual(done.returncode, code)
                self.assertIn(f"lockstep: error: launch: {said} after", done.stderr.decode())
                self.assertTrue(done.stderr.decode().endswith("; it printed nothing\n"))

    def test_one_that_is_stopped_is_lost(self):
        for script, options in (
            # nobody notices but launch
            (f"[ $LOCKSTEP_RANK = 1 ] && kill -STOP $$; {FOREVER}", ("--stopped-limit=0.3", "--failure-grace=0.2")),
            # the others have noticed
            (f"[ $LOCKSTEP_RANK = 1 ] && {{ touch stopped; kill -STOP $$; }}; {UNTIL % 'stopped'} sleep 0.2; exit 5", ()),
        ):
            with self.subTest(options=options):
                done = self.launch(2, script, *options)
                self.assertEqual(done.returncode, PEER_LOST)
                self.assertRegex(done.stderr.decode(),
                                 r"lockstep: error: launch: worker 1 was stopped by SIGSTOP after \d+\.\d s, and did not continue; ")

    def test_one_that_is_continued_is_not(self):
        process = self.start(2, "[ $LOCKSTEP_RANK = 1 ] && { echo $$ > pid; kill -STOP $$; }; exit 0", "--stopped-limit=60")
        pid = int(self.ready("pid")[0])
        def state():
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        self.wait_for(lambda: state() == "T")
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (DONE, b""))

    def test_a_worker_that_does_not_end_by_sigterm_is_killed(self):
        begin = time.monotonic()
        done = self.launch(2, f"[ $LOCKSTEP_RANK = 1 ] && exit 1; trap '' TERM; {FOREVER}", "--failure-grace=0.2")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("worker 0 has not ended by itself: it gets SIGKILL", done.stderr.decode())
        self.assertGreater(time.monotonic() - begin, 2)

    def test_the_last_lines_are_the_last(self):
        done = self.launch(2, 'printf "\\033[2Jred\\n" >&2; seq 100 >&2; exit 1')
        tail = done.stderr.decode().split("its last lines:\n")[1]
        self.assertEqual(tail, "".join(f"  | {i}\n" for i in range(95, 101)))
        done = self.launch(1, 'printf "\\033[2Jred" >&2; exit 1')
        self.assertTrue(done.stderr.decode().endswith("its last lines:\n  | ?[2Jred\n"), done.stderr)

    def test_a_time_limit(self):
        done = self.launch(2, FOREVER, "--timeout=0.3", "--failure-grace=1")
        self.assertEqual(done.returncode, PEER_LOST)
        self.assertEqual(done.stderr.decode().splitlines()[-1],
                         "lockstep: error: launch: not done after 0.3 s (--timeout): all processes were ended")

    def test_servers_end_when_the_workers_have(self):
        done = self.launch(2, f"[ $LOCKSTEP_ROLE = worker ] && exit 0; {FOREVER}", "--servers=2", "--failure-grace=0.2")
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = self.launch(2, f"[ $LOCKSTEP_ROLE = server ] && exit 4; {FOREVER}", "--servers=1", "--failure-grace=0.2")
        self.assertEqual(done.returncode, 4)
        self.assertIn("server 0 ended with exit code 4", done.stderr.decode())


class Processes(LaunchTest):
    """What the workers start themselves."""

    def test_what_a_worker_leaves_behind_ends_with_it(self):
        process = self.start(2, "[ $LOCKSTEP_RANK = 0 ] && { sleep 1000 & echo $! > pid; exit 0; }; " + UNTIL % "end")
        pid = int(self.ready("pid")[0])
        self.wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
        self.assertIsNone(process.poll())  # worker 1 runs on
        open(self.path("end"), "w").close()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, DONE)

    def test_a_daemon_ends_with_the_launch(self):
        """It has a session of its own, keeps the pipes open, and starts children of its own."""
        done = self.launch(2, "setsid sh -c 'sleep 1000 & sleep 1000' & sleep 0.2; echo begun")
        self.assertEqual(done.returncode, DONE)
        self.assertEqual(sorted(done.stdout), sorted(b"begun\n[1] begun\n"))

    def test_grandchildren_end_with_a_failure(self):
        done = self.launch(3, "[ $LOCKSTEP_RANK = 1 ] && { sleep 0.2; kill -9 $$; }; sh -c 'sleep 1000 & sleep 1000'", "--failure-grace=0.2")
        self.assertEqual(done.returncode, PEER_LOST)

    def test_where_launch_is_killed_nobody_is_left(self):
        process = self.start(3, "sleep 1000 & echo $! > pid.$LOCKSTEP_RANK; trap '' TERM HUP INT; wait")
        self.ready("pid.0", "pid.1", "pid.2")
        self.assertGreaterEqual(len(self.survivors()), 7)
        process.kill()
        process.wait()
        self.nothing_is_left()

    def test_nor_are_files_of_servers(self):
        self.environment["TMPDIR"] = self.path("temporary")
        os.mkdir(self.environment["TMPDIR"])
        process = self.start(1, "echo x > $LOCKSTEP_SERVER_FOLDER/lockstep-$LOCKSTEP_ROLE; echo x > ready.$LOCKSTEP_ROLE; sleep 1000", "--servers=1")
        self.ready("ready.worker", "ready.server")
        self.assertEqual(len(os.listdir(self.environment["TMPDIR"])), 1)
        process.kill()
        process.wait()
        self.nothing_is_left()
        self.wait_for(lambda: not os.listdir(self.environment["TMPDIR"]))


class Signals(LaunchTest):
    READY = "echo $$ > ready.$LOCKSTEP_RANK; "

    def begin(self, count, script, *options):
        process = self.start(count, script, *options)
        self.ready(*(f"ready.{i}" for i in range(count)))
        return process

    def end(self, process, *numbers):
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.1)
        out, err = process.communicate(timeout=60)
        self.nothing_is_left()
        return process.returncode, err.decode()

    def test_the_first_is_passed_on_as_sigterm(self):
        script = "trap 'echo saved > saved.$LOCKSTEP_RANK; exit 143' TERM; " + self.READY + FOREVER
        for number, code in ((signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED), (signal.SIGHUP, INTERRUPTED)):
            with self.subTest(number.name):
                process = self.begin(3, script)
                code_now, err = self.end(process, number)
                self.assertEqual((code_now, err.splitlines()[-1]),
                                 (code, f"lockstep: warning: launch: interrupted by {number.name}: all processes have ended"))
                self.ready("saved.0", "saved.1", "saved.2")
                for name in os.listdir(self.folder):
                    os.unlink(self.path(name))

    def test_a_program_below_a_script_has_time_to_save(self):
        """The shell dies of the signal, the program that it has started does not."""
        process = self.begin(2, "sh -c \"trap 'sleep 0.4; echo saved > saved.$LOCKSTEP_RANK; exit 143' TERM; " +
                             self.READY.replace("$$", "1") + FOREVER + "\"; exit 0")
        self.assertEqual(self.end(process, signal.SIGTERM)[0], TERMINATED)
        self.ready("saved.0", "saved.1")

    def test_who_does_not_end_in_time_is_killed_and_named(self):
        process = self.begin(2, "[ $LOCKSTEP_RANK = 1 ] && trap '' TERM; " + self.READY + FOREVER, "--stop-grace=0.3")
        code, err = self.end(process, signal.SIGTERM)
        self.assertEqual(code, PEER_LOST)
        self.assertIn("worker 1 has not ended by itself: it gets SIGKILL", err)
        self.assertIn("a process had to be killed, because it did not end within 0.3 s (--stop-grace)", err)

    def test_a_second_one_ends_all_at_once(self):
        process = self.begin(2, "trap '' TERM INT; " + self.READY + FOREVER)
        begin = time.monotonic()
        code, err = self.end(process, signal.SIGTERM, signal.SIGINT)
        self.assertEqual(code, TERMINATED)
        self.assertIn("interrupted: what is still running gets SIGKILL", err)
        self.assertLess(time.monotonic() - begin, 20)  # and not the 30 s of --stop-grace

    def test_a_failure_while_they_end_wins(self):
        process = self.begin(2, "trap '[ $LOCKSTEP_RANK = 1 ] && exit 5; exit 143' TERM; " + self.READY + FOREVER)
        code, err = self.end(process, signal.SIGTERM)
        self.assertEqual(code, PEER_LOST)
        self.assertIn("worker 1 ended with exit code 5", err)

    def test_a_signal_to_one_worker_that_ends_all(self):
        """They checkpoint and end with 143, one after the other; nobody is disturbed by a second signal."""
        process = self.begin(3, "trap 'touch end; exit 143' TERM; trap 'exit 9' INT; " + self.READY +
                             UNTIL % "end" + "sleep 0.5; exit 143", "--failure-grace=0.1")
        os.kill(int(self.ready("ready.1")[0]), signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (TERMINATED, b""))


    def test_ctrl_c_on_a_terminal_reaches_the_workers_once(self):
        master, slave = self.terminal()
        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        script = "trap 'exit 9' INT; trap 'echo saved >> saved.$LOCKSTEP_RANK; exit 143' TERM; " + self.READY + FOREVER
        process = subprocess.Popen([LOCKSTEP, "launch", "-n2", "--", "sh", "-c", script], cwd=self.folder, env=self.environment,
                                   stdin=slave, stdout=slave, stderr=subprocess.PIPE, preexec_fn=take_terminal)
        os.close(slave)
        self.addCleanup(os.close, master)
        self.ready("ready.0", "ready.1")
        os.write(master, b"\x03")
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual((process.returncode, err.splitlines()[-1]),
                         (INTERRUPTED, "lockstep: warning: launch: interrupted by SIGINT: all processes have ended"))
        self.assertEqual(self.ready("saved.0", "saved.1"), ["saved", "saved"])

    def test_the_first_process_of_a_container_ends_as_any_other(self):
        """All orphans become its children, also those that are none of the workers' doing."""
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no container can be made: unshare --pid is refused")
        process = subprocess.Popen([*alone, LOCKSTEP, "launch", "-n2", "--", "sh", "-c",
                                    "trap 'exit 143' TERM; " + self.READY + FOREVER], cwd=self.folder, env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.ready("ready.0", "ready.1")
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            first = int(file.read())
        begin = time.monotonic()
        os.kill(first, signal.SIGTERM)
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual((process.returncode, err.splitlines()[-1]),
                         (TERMINATED, "lockstep: warning: launch: interrupted by SIGTERM: all processes have ended"))
        self.assertLess(time.monotonic() - begin, 20)  # and not the 30 s of --stop-grace


class Restart(LaunchTest):
    def test_all_are_started_again(self):
        script = ('echo $LOCKSTEP_RESTART_COUNT $LOCKSTEP_ADDRESS $LOCKSTEP_SECRET >> log.$LOCKSTEP_RANK; '
                  '[ $LOCKSTEP_RANK = 1 ] && [ $LOCKSTEP_RESTART_COUNT -lt 2 ] && kill -9 $$; '
                  '[ $LOCKSTEP_RESTART_COUNT = 2 ] || ' + FOREVER)
        done = self.launch(2, script, "--restart=3", "--failure-grace=0.5")
        err = done.stderr.decode()
        self.assertEqual(done.returncode, DONE, err)
        self.assertEqual(re.findall(r"all processes are started again \((.*)\)", err), ["1 of 3", "2 of 3"])
        self.assertNotIn("error", err)
        zero, one = (text.splitlines() for text in self.ready("log.0", "log.1"))
        self.assertEqual(zero, one)
        self.assertEqual([line.split()[0] for line in zero], ["0", "1", "2"])
        self.assertEqual(len({line.split()[2] for line in zero}), 3)  # what is left of an earlier start is a stranger

    def test_not_more_often_than_allowed(self):
        done = self.launch(2, "echo x >> starts.$LOCKSTEP_RANK; exit 6", "--restart=2")
        self.assertEqual(done.returncode, 6)
        self.assertEqual(self.ready("starts.0")[0].split(), ["x"] * 3)
        self.assertEqual(done.stderr.decode().count("lockstep: error: "), 1)

    def test_a_command_that_was_refused_is_not_tried_again(self):
        outcome = self.lockstep("launch", "-n2", "--restart=3", "--", "train", "--resume", "--modle=cnn", environment=self.environment)
        self.assertEqual(outcome.code, USAGE)
        self.assertNotIn("again", outcome.err)
        self.assertIn("did you mean --model?", outcome.err)

    def test_without_resume_there_is_a_warning(self):
        outcome = self.lockstep("launch", "-n1", "--restart=1", "train", "--nonsense", environment=self.environment)
        self.assertIn("begins the training anew after a failure", outcome.err)


class GoingOn(LaunchTest):
    """With servers, and where the command has --elastic=, one process is started again, or given up, and the others go on."""
    ME = 'me=$LOCKSTEP_ROLE.$LOCKSTEP_RANK; echo "$LOCKSTEP_RESTART_COUNT $LOCKSTEP_ADDRESS $LOCKSTEP_SECRET ${LOCKSTEP_LISTEN_FD:-none} $$" >> $me; '

    def starts(self, name):
        return [line.split() for line in self.ready(name)[0].splitlines()]

    def test_one_that_is_killed_comes_back_beside_the_others(self):
        script = (self.ME + 'case $me.$LOCKSTEP_RESTART_COUNT in worker.1.[01]|server.0.0) echo last words; kill -9 $$;; worker.1.2) touch end;; esac; '
                  + UNTIL % "end" + "echo done")
        done = self.launch(3, script, "--servers=1", "--restart=3")
        err = done.stderr.decode()
        self.assertEqual(done.returncode, DONE, err)
        self.assertEqual(sorted(done.stdout.decode().splitlines()), sorted(["done", "[1] done", "[2] done", "[server 0] done"]
                                                                           + 2 * ["[1] last words"] + ["[server 0] last words"]))
        self.assertEqual(sorted(re.findall(r"launch: (\S+ \d) was killed by SIGKILL after \d+\.\d s; it is started again \([123] of (3)\)", err)),
                         [("server 0", "3"), ("worker 1", "3"), ("worker 1", "3")])
        self.assertEqual([[start[0] for start in self.starts(name)] for name in ("worker.0", "worker.1", "worker.2", "server.0")],
                         [["0"], ["0", "1", "2"], ["0"], ["0", "1"]])
        self.assertEqual(len({(address, secret) for name in ("worker.0", "worker.1", "server.0")
                              for _, address, secret, _, _ in self.starts(name)}), 1)

    def test_not_more_often_than_allowed(self):
        done = self.launch(2, self.ME + f"[ $me = worker.1 ] && exit 6; {FOREVER}", "--restart=2", "--failure-grace=0.1", "--servers=1")
        self.assertEqual(done.returncode, 6)
        self.assertEqual(len(self.starts("worker.1")), 3)
        self.assertEqual(len(self.starts("worker.0")), 1)
        self.assertEqual(len(self.starts("server.0")), 1)
        self.assertIn("error: launch: worker 1 ended with exit code 6", done.stderr.decode())

    def test_worker_0_listens_by_itself_the_second_time(self):
        done = self.launch(1, self.ME + "[ $LOCKSTEP_RESTART_COUNT = 1 ] || exit 1", "--restart=2", "--servers=1")
        self.assertEqual(done.returncode, DONE)
        self.assertEqual([start[3] == "none" for start in self.starts("worker.0")], [False, True])
        self.assertEqual([start[3] == "none" for start in self.starts("server.0")], [False, False])

    def test_a_server_is_where_it_was(self):
        with open(self.path("serve.py"), "w") as file:
            file.write('''
import os, socket, time
address = os.environ["LOCKSTEP_SERVER_ADDRESSES"].split(",")[1].split(":")
if os.environ["LOCKSTEP_ROLE"] == "worker":
    for begun in range(2):  # the second connection may come while nobody is there
        with socket.create_connection(address, 10) as server:
            print(server.recv(100).decode(), flush=True)
elif os.environ["LOCKSTEP_RANK"] == "1":
    peer = socket.socket(fileno=int(os.environ["LOCKSTEP_LISTEN_FD"])).accept()[0]
    peer.sendall(f"start {os.environ['LOCKSTEP_RESTART_COUNT']} of {os.environ['LOCKSTEP_JOB']}".encode())
    peer.close()
    os.kill(os.getpid(), 9)
''')
        process = subprocess.Popen([LOCKSTEP, "launch", "-n1", "--servers=2", "--restart=2", "--", sys.executable, "serve.py"], cwd=self.folder,
                                   env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        self.assertEqual(sorted(out.splitlines()), [f"start {i} of launch-{process.pid}" for i in range(2)], err)

    def test_one_that_is_stopped_is_replaced(self):
        done = self.launch(2, self.ME + "[ $me.$LOCKSTEP_RESTART_COUNT = worker.1.0 ] && kill -STOP $$; [ $me = worker.0 ] || touch end; " +
                           UNTIL % "end", "--restart=1", "--stopped-limit=0.2", elastic="1:2")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertRegex(done.stderr.decode(), r"worker 1 was stopped by SIGSTOP after .* and did not continue; it is started again \(1 of 1\)\n$")

    def test_who_waited_for_a_server_or_was_asked_to_end_ends_all(self):
        for code, expected in ((5, PEER_LOST), (143, TERMINATED)):
            with self.subTest(code=code):
                done = self.launch(2, f"[ $LOCKSTEP_RANK = 1 ] && exit {code}; {FOREVER}", "--restart=3", "--servers=1", "--failure-grace=0.1",
                                   "--stop-grace=0.1")
                self.assertEqual(done.returncode, expected)
                self.assertNotIn("again", done.stderr.decode())

    def test_a_command_that_was_refused_is_not_tried_again(self):
        outcome = self.lockstep("launch", "-n1", "--servers=1", "--restart=3", "--", "train", "--modle=cnn", environment=self.environment)
        self.assertEqual(outcome.code, USAGE)
        self.assertNotIn("again", outcome.err)
        # Here the server waits for workers, and has nothing to add to what they said.
        outcome = self.lockstep("launch", "-n2", "--servers=1", "--", "train", "--model=mlp", "--dataset=synthetic:examples=30",
                                "--strategy=parameter-server", "--checkpoint-dir=" + self.path("c"), environment=self.environment)
        self.assertEqual(outcome.code, USAGE)
        self.assertNotIn("lockstep: warning: launch:", outcome.err)

    def test_a_signal_ends_also_what_is_about_to_start_again(self):
        process = self.start(2, self.ME + f"[ $me = worker.1 ] && exit 3; {FOREVER}", "--restart=1000", "--servers=1")
        self.wait_for(lambda: os.path.exists(self.path("worker.1")) and len(starts := self.starts("worker.1")) > 2
                      and not os.path.exists("/proc/" + starts[-1][-1]))  # else it may be the failure that wins
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, TERMINATED)
        self.nothing_is_left()

    def test_an_elastic_training_goes_on_with_fewer(self):
        script = ("case $LOCKSTEP_RANK in 1) %s;; 3) %s;; esac; sleep 0.3; "
                  "[ $LOCKSTEP_RANK = 0 ] && [ -n \"$LOSE_0\" ] && exit 1; sleep 0.3; echo done")
        done = self.launch(4, script % ("kill -9 $$", "exit 5"), elastic="2:4")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(sorted(done.stdout.decode().splitlines()), ["[2] done", "done"])
        self.assertEqual(re.findall(r"after .*; the others continue: (.*)", done.stderr.decode()), ["3 of at least 2", "2 of at least 2"])
        # Those that come back are new workers.
        self.environment["LOCKSTEP_JOIN"] = "1"
        again = "echo ${LOCKSTEP_JOIN-no}; kill -9 $$"
        done = self.launch(4, script % (again, again), "--restart=2", elastic="2:4")
        self.assertEqual(done.returncode, DONE, done.stderr)
        joined = re.findall(r"\[[13]\] (\w+)", done.stdout.decode())
        self.assertEqual(sorted(joined), ["1", "1", "no", "no"])
        self.environment["LOSE_0"] = "1"
        done = self.launch(4, script % ("kill -9 $$", "exit 5"), "--failure-grace=0.1", elastic="2:4")
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("error: launch: worker 0 ended with exit code 1", done.stderr.decode())


class Secret(LaunchTest):
    def test_a_file_for_its_owner_alone(self):
        path = self.path("key")
        outcome = self.lockstep("launch", "--make-secret=" + path, preexec_fn=lambda: os.umask(0))
        self.assertEqual(outcome.code, DONE, outcome.err)
        with open(path) as file:
            secret = file.read()
        self.assertRegex(secret, "^[0-9a-f]{64}\n$")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertNotIn(secret.strip(), outcome.out + outcome.err)
        self.refused(BAD_INPUT, "launch", "--make-secret=" + path, says=("exists already", "remove it"))
        with open(path) as file:
            self.assertEqual(file.read(), secret)
        os.symlink(self.path("elsewhere"), self.path("link"))
        self.refused(BAD_INPUT, "launch", "--make-secret=" + self.path("link"), says=("exists already",))
        self.assertFalse(os.path.exists(self.path("elsewhere")))
        self.refused(BAD_INPUT, "launch", "--make-secret=" + self.path("no/key"), says=("cannot be made", "No such file"))
        self.lockstep("launch", "--make-secret=" + self.path("other"))
        with open(self.path("other")) as file:
            self.assertNotEqual(file.read(), secret)


class Usage(LaunchTest):
    def test_what_cannot_be_launched_is_refused_in_one_line(self):
        for code, arguments, says in (
            (USAGE, (), ("needs the number of workers", "-n 4")),
            (USAGE, ("-n", "2"), ("needs a command", "-- train")),
            (USAGE, ("-n", "2", "--"), ("needs a command",)),
            (USAGE, ("-n", "0", "--", "true"), ("--workers=0", "from 1 to")),
            (USAGE, ("-n", "two", "--", "true"), ("--workers=two",)),
            (USAGE, ("-n1", "-n2", "true"), ("--workers is given twice",)),
            (USAGE, ("-x", "true"), ("options begin with two dashes",)),
            (USAGE, ("-n",), ("needs a value",)),
            (USAGE, ("-n2", "train", "--elastic=3:4"), ("--elastic=3:4", "MIN from 1 to the 2 workers")),
            (USAGE, ("-n2", "--prefix=maybe", "true"), ("auto, always or never",)),
            (USAGE, ("-n2", "--failure-grace=-1", "true"), ("at least 0",)),
            (USAGE, ("-n2", "--timeout=0", "true"), ("more than 0",)),
            (USAGE, ("-n2", "--", "launch", "-n2", "true"), ("cannot launch itself",)),
            (USAGE, ("-n2", "--make-secret=key", "true"), ("--make-secret and --workers exclude each other",)),
            (USAGE, ("--nproc_per_node=2", "true"), ("it is --workers=N, or -n N",)),
            (USAGE, ("--nnodes=2", "true"), ("on several, mpirun, srun, torchrun", "--make-secret")),
            (USAGE, ("--max-restarts=2", "true"), ("it is --restart=K",)),
            (BAD_INPUT, ("-n2", "--", "./no-such-program"), ("cannot start './no-such-program': No such file",)),
            (BAD_INPUT, ("-n2", "--", "trian"), ("cannot start 'trian'", "did you mean 'train'?")),
        ):
            with self.subTest(arguments=arguments):
                self.refused(code, "launch", *arguments, says=says)

    def test_where_there_are_too_few_files_all_are_ended(self):
        done = subprocess.run(["sh", "-c", f"ulimit -n 40; exec {LOCKSTEP} launch -n 40 -- sleep 1000"], env=self.environment,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(done.stderr, r"^lockstep: error: launch: cannot start worker \d+: Too many open files; .*\(ulimit -n\)\n$")
        self.nothing_is_left()
        # How many a worker needs depends on what it has open; where they are too few it says so, and nobody waits for the deadline.
        train = "train --model=mlp --dataset=synthetic:examples=600 --quiet --join-deadline=30 --deadline=30"
        for most in range(14, 20):
            start = time.monotonic()
            done = subprocess.run(["sh", "-c", f"ulimit -n {most}; exec {LOCKSTEP} launch -n 2 -- {train}"], env=self.environment,
                                  capture_output=True, text=True, timeout=120)
            if done.returncode != DONE:
                self.assertIn("Too many open files", done.stderr)
                self.assertLess(time.monotonic() - start, 20, done.stderr)


if __name__ == "__main__":
    main(threads=8)
