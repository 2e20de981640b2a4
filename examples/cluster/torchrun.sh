#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One training under torchrun. On one host:          examples/cluster/torchrun.sh 2
# On two hosts, on each of them with its number:     examples/cluster/torchrun.sh 2 2 0 FIRST-HOST
set -eu
workers=${1:-2} # on each host
hosts=${2:-1}
host=${3:-0}
first=${4:-}

if [ "$hosts" -gt 1 ]; then
    # The same file on all hosts: made once by `lockstep launch --make-secret=FILE`, then copied.
    export LOCKSTEP_SECRET_FILE="${LOCKSTEP_SECRET_FILE:-$HOME/lockstep.secret}"
    set -- --nnodes="$hosts" --node_rank="$host" --master_addr="$first" --master_port=29500
else
    set -- --standalone
fi
# --no_python: what follows is a program, not a script. PyTorch before 2.0 knows the options by underscores only.
exec torchrun "$@" --nproc_per_node="$workers" --no_python \
    lockstep train --model=cnn --dataset=fashion-mnist --epochs=5 --strategy=multi-worker-mirrored
