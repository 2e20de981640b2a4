# SPDX-License-Identifier: Apache-2.0
"""kubernetes-validate (PyPI) checks the manifests of examples/cluster by the schemas of Kubernetes.

Needs kubernetes_validate, here or in another Python (keras_python.py says where it is looked for); without it, everything is skipped.
"""
import os
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError:
    from keras_python import python_with

    other, missing = python_with(("kubernetes_validate",), "KUBERNETES")
    if missing:
        print(f"SKIP: manifests were not given to kubernetes-validate: {missing}")
        sys.exit(77)
    os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])

from support import ProgramTest, main

MANIFEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "cluster", "indexed-job.yaml")


class Manifests(ProgramTest):
    def load(self):
        with open(MANIFEST) as file:
            return list(yaml.safe_load_all(file))

    def test_the_indexed_job_is_valid(self):
        parts = self.load()
        self.assertEqual(len(parts), 2)
        for part in parts:
            kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)

    def test_a_mistake_is_found(self):
        job = self.load()[1]
        job["spec"]["completions"] = "four"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
        job = self.load()[1]
        job["spec"]["template"]["spec"]["subDomain"] = "train"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


if __name__ == "__main__":
    main()
