#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One training of two workers by TF_CONFIG, as it is written by hand. In two terminals:
#
#     examples/cluster/tf-config.sh 0
#     examples/cluster/tf-config.sh 1
set -eu
cluster='"cluster": {"worker": ["localhost:12345", "localhost:23456"]}'
exec env "TF_CONFIG={$cluster, \"task\": {\"type\": \"worker\", \"index\": $1}}" \
    lockstep train --model=cnn --dataset=fashion-mnist --epochs=5 --strategy=multi-worker-mirrored
