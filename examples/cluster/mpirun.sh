#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One training under mpirun of Open MPI:   examples/cluster/mpirun.sh [WORKERS [HOSTFILE]]
set -eu
workers=${1:-2}
hostfile=${2:-}

# mpirun binds each process to one core, unless it is told not to: then a worker computes with one thread.
set -- --bind-to none -np "$workers"
if [ -n "$hostfile" ]; then
    # Workers of several hosts know each other by a secret, in a file that all hosts see.
    LOCKSTEP_SECRET_FILE=${LOCKSTEP_SECRET_FILE:-$PWD/lockstep.secret}
    export LOCKSTEP_SECRET_FILE
    [ -f "$LOCKSTEP_SECRET_FILE" ] || lockstep launch --make-secret="$LOCKSTEP_SECRET_FILE"
    set -- "$@" --hostfile "$hostfile" -x LOCKSTEP_SECRET_FILE
fi
exec mpirun "$@" \
    lockstep train --model=cnn --dataset=fashion-mnist --epochs=5 --strategy=multi-worker-mirrored
