#!/usr/bin/env bash
# Trains one model with two processes on this machine, as two machines would.
#   examples/two_workers.sh checkpoints/two --data hsk --minutes 2
# All arguments go to `nmt train`. Stop with Ctrl-C; the same command goes on from there.
set -euo pipefail
nmt=${NMT:-.venv/bin/nmt}
addresses='"127.0.0.1:23450", "127.0.0.1:23451"'

worker() {
    TF_CONFIG="{\"cluster\": {\"worker\": [$addresses]}, \"task\": {\"type\": \"worker\", \"index\": $1}}" \
        "$nmt" train "${@:2}" --set training.batch_parts=1
}

worker 1 "$@" 2> >(sed 's/^/worker 1: /' >&2) &
worker 0 "$@"
wait
