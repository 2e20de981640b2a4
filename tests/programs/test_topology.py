# SPDX-License-Identifier: Apache-2.0
"""--topology: what collectives are told, that it is the same on all workers, and that sums stay what they are."""

from support import BAD_INPUT, DONE, USAGE, ProgramTest, main, write_json

ORDER = ("ring:channels=2", "tree:channels=2")  # that go along the order
OTHERS = ("ring", "direct", "halving-doubling", "torus", "hierarchical-copy:groups=1")
NETWORK = {"name": "mine", "topology": "flat", "latency_us": 1, "bandwidth_gb_s": 10}
NODE = {"latency_us": 1, "bandwidth_gb_s": 100}


class Topology(ProgramTest):
    def write(self, name="mine.json", **more):
        write_json(self.path(name), {**NETWORK, **more})
        return "--topology=" + self.path(name)

    def options(self, strategy, *more):
        return ("--model=mlp", "--dataset=synthetic:examples=60", "--batch=30", "--threads=1", "--steps=3", "--validation=off", "--seed=3",
                "--strategy=" + strategy, *more)

    def run_it(self, strategy, *more, workers=1, **others):
        report = self.train(*self.options(strategy, *more), under=("launch", f"-n{workers}", "--") if workers > 1 else (), **others)
        self.assertEqual(len(set(report["parameter_hashes"])), 1, report["parameter_hashes"])
        return report

    def test_orders_of_three_and_four_ranks(self):
        for order in ([2, 0, 1], [1, 0, 2], [2, 1, 0], [3, 0, 2, 1]):
            topology, replicas = self.write(order=order), f"--replicas={len(order)}"
            for strategy in ORDER if len(order) == 4 else ORDER[:1]:
                with self.subTest(strategy=strategy, order=order):
                    plain, told = self.run_it(strategy, replicas), self.run_it(strategy, replicas, topology)
                    self.assertNotIn("topology", plain)
                    self.assertEqual(told["topology"], {"source": self.path("mine.json"), "hosts": None, "cards": None, "order": order})
                    for one, other in zip(plain["losses"], told["losses"]):
                        self.assertAlmostEqual(one, other, places=5)
        # Along another order values are added in another order, unless it is the same ring, turned.
        self.assertNotEqual(told["parameter_hashes"], plain["parameter_hashes"])

    def test_other_collectives_keep_their_bits(self):
        topology = self.write(order=[1, 0, 2])
        for strategy in OTHERS:
            with self.subTest(strategy):
                plain, told = (self.run_it(strategy, "--replicas=3", *more) for more in ((), (topology,)))
                for same in ("losses", "parameter_hashes"):
                    self.assertEqual(plain[same], told[same])

    def test_nodes_of_a_file_are_hosts_for_the_collective(self):
        topology = self.write(topology="nodes", node={**NODE, "ranks": 2, "cards": 1})
        report = self.run_it("two-level", "--replicas=4", topology)
        self.assertEqual(report["topology"], {"source": self.path("mine.json"), "hosts": [0, 0, 1, 1], "cards": [0, 0, 1, 1], "order": None})
        apart = self.run_it("two-level", "--replicas=2", topology, workers=2)
        self.assertEqual((report["topology"], report["parameter_hashes"]), (apart["topology"], apart["parameter_hashes"][:1] * 4))

    def test_a_torus_and_a_name(self):
        report = self.run_it("ring:channels=0", "--replicas=4", self.write(topology="torus", sides=[2, 2]))
        self.assertEqual(report["topology"]["order"], [0, 1, 3, 2])
        outcome = self.lockstep("train", *self.options("ring", "--replicas=4", "--topology=tpu-torus-2d", "--verbose"))
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("topology tpu-torus-2d, order 0 1 3 2\n", outcome.out)

    def test_what_the_system_shows(self):
        # Whatever this machine shows: in one process and in two it is the same, and ranks are ranks.
        one, two = (self.run_it("ring:channels=2", f"--replicas={replicas}", "--topology=sys", workers=workers)
                    for workers, replicas in ((1, 2), (2, 1)))
        self.assertEqual(one["topology"], two["topology"])
        self.assertEqual((one["topology"]["source"], one["topology"]["hosts"]), ("sys", None))
        self.assertIn(one["topology"]["order"], (None, [1, 0]))

    def test_bench_takes_one(self):
        outcome = self.lockstep("bench", "ring:channels=2", "tree:channels=2", "--replicas=3", "--bytes=1K", "--seconds=0", "--iterations=1",
                                "--warmup=0", self.write(order=[1, 0, 2]))
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("order 1 0 2\n", outcome.out)

    def test_what_does_not_fit(self):
        torus = self.write("torus.json", topology="torus", sides=[2, 2])
        graph = self.write("graph.json", topology="graph", ranks=2, links=[{"from": 0, "to": 1}])
        short = self.write("short.json", order=[0, 1])
        twice = self.write("twice.json", order=[0, 1, 1])
        three = ("train", *self.options("ring", "--replicas=3"))
        for code, option, says in ((BAD_INPUT, torus, ("a torus of 2 x 2 has 4 ranks, not 3",)),
                                   (BAD_INPUT, graph, ("the graph has 2 ranks, not 3",)),
                                   (BAD_INPUT, short, ("the order has 2 ranks, not 3",)),
                                   (BAD_INPUT, twice, ("order", "each once")),
                                   (BAD_INPUT, "--topology=/nowhere/at-all.json", ("/nowhere/at-all.json",)),
                                   (USAGE, "--topology=SYS", ("there is no network 'SYS'", "or sys for what Linux shows, or a file of your own")),
                                   (USAGE, "--topology=tpu-tours", ("--topology", "did you mean 'tpu-torus'"))):
            with self.subTest(option):
                self.refused(code, *three, option, says=says)
        self.refused(BAD_INPUT, "bench", "ring", "--replicas=3", "--bytes=1K", torus, says=("not 3",))
        self.refused(USAGE, "train", *self.options("ring", short, "--elastic=1:2"), says=("--topology", "--elastic"))

    def test_workers_with_different_topologies_say_so(self):
        program = 'exec "$LOCKSTEP_PROGRAM" "$@" --topology="$(dirname "$0")/$LOCKSTEP_RANK.json"'
        script = self.path("each.sh")
        with open(script, "w") as file:
            file.write(program)
        for rank, order in ((0, [0, 1]), (1, [1, 0])):
            self.write(f"{rank}.json", order=order)
        outcome = self.lockstep("launch", "-n2", "--", "sh", script, "train", *self.options("ring"))
        self.assertEqual(outcome.code, USAGE, outcome.err)
        self.assertIn("--topology", outcome.err)


if __name__ == "__main__":
    main()
