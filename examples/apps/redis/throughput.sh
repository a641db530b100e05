#!/usr/bin/env bash
# Prints the table in the section "Throughput" of the README. The script starts redis-server and app-redis once for each
# round, and drives both with redis-benchmark. The servers take turns. Each number of the table is a median.
#
#     examples/apps/redis/throughput.sh              # 7 rounds, with pipelines of 16 requests
#     examples/apps/redis/throughput.sh 3 1          # 3 rounds, without pipelines
#
# The script needs Linux, redis-server and redis-benchmark. Stop all other programs that use the cores.
set -euo pipefail
cd "$(dirname "$0")/../../.."

rounds=${1:-7} pipeline=${2:-16} requests=200000
rows=(ping set get incr lpush lpop sadd hset)
ours=${CARGO_TARGET_DIR:-target}/release/app-redis
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT

# start NAME: starts a server, waits until the server answers, and sets `server` to its process id.
start() {
  local command=("$ours" --port 7380 --workers 2)
  [ "$1" != redis ] || command=(redis-server --port 7380 --save '' --appendonly no)
  "${command[@]}" >"$scratch/log" 2>&1 &
  server=$!
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    sleep 0.1
    # If another program uses the port, the new server exits, and the other program may answer.
    kill -0 "$server" 2>/dev/null || break
    [ "$(redis-cli -p 7380 PING 2>/dev/null)" != PONG ] || return 0
  done
  cat "$scratch/log" >&2
  return 1
}

# CPU time of the server so far, in clock ticks. The name of the program contains no space.
ticks() {
  awk '{ print $14 + $15 }' "/proc/$server/stat"
}

# Runs all rows on one server. Appends the requests per second and the CPU time of each request to a file for each row.
measure() {
  local row before rate count hertz
  hertz=$(getconf CLK_TCK)
  start "$1"
  for row in "${rows[@]}"; do
    # `ping` runs two tests, with the inline command and with the command as an array. The second rate is printed last.
    count=$requests
    [ "$row" != ping ] || count=$((2 * requests))
    before=$(ticks)
    rate=$(redis-benchmark -p 7380 -t "$row" -n "$requests" -c 50 -P "$pipeline" --csv | tail -n 1 | cut -d '"' -f 4)
    awk -v rate="$rate" -v ticks=$(($(ticks) - before)) -v hertz="$hertz" -v count="$count" \
      'BEGIN { print rate, 1e6 * ticks / hertz / count }' >>"$scratch/$1.$row"
  done
  kill "$server"
  wait "$server" || true
}

# median COLUMN FILE
median() {
  awk -v column="$1" '{ print $column }' "$2" | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

cargo build --release --package app-redis
for ((round = 0; round < rounds; round++)); do
  order=(redis ours)
  [ $((round % 2)) = 0 ] || order=(ours redis)
  for name in "${order[@]}"; do measure "$name"; done
done
printf '| row | Redis %s | app-redis | ratio | CPU, Redis | CPU, app-redis | ratio |\n|---|---|---|---|---|---|---|\n' \
  "$(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')"
for row in "${rows[@]}"; do
  awk -v row="$row" -v a="$(median 1 "$scratch/redis.$row")" -v b="$(median 1 "$scratch/ours.$row")" \
    -v c="$(median 2 "$scratch/redis.$row")" -v d="$(median 2 "$scratch/ours.$row")" 'BEGIN {
      printf "| %s | %.0f | %.0f | %.2f | %.2f µs | %.2f µs | %.2f |\n", row, a, b, b / a, c, d, c ? d / c : 0
    }'
done
