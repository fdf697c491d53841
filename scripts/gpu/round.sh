#!/bin/bash
# One call of a machine with one or two GPUs: random programs on its CPU cores and its GPUs, all of one commit.
#
#   git archive HEAD -o .dev/frozen.tar                       # here, .dev being ignored by git
#   bash scripts/gpu/round.sh FIRST JOBS SECONDS [tests]      # there, with .dev carried
#
# FIRST: the first seed of the CPU's; the GPUs' are 500,000 and 550,000 further on. With "tests", tests/gpu
# runs first on the GPUs. Failing seeds, logs and summaries lie in $OUT.
set -u
first=$1 jobs=$2 seconds=$3 tests=${4-}
started=$SECONDS
rm -rf /tmp/frozen && mkdir /tmp/frozen && tar -xf .dev/frozen.tar -C /tmp/frozen && cd /tmp/frozen || exit
export OMP_NUM_THREADS=1 PYTHONPATH=/tmp/frozen PYTHONUNBUFFERED=1

fuzz() { # NAME TARGET FIRST JOBS SECONDS
  python3 scripts/fuzz.py --target "$2" --seeds "$3:" --jobs "$4" --seconds "$5" --timeout 150 \
    --out "$OUT/$1.jsonl" >"$OUT/$1.log" 2>&1
}
on_gpu() { # GPU, and the files of tests/gpu that it takes
  local gpu=$1
  shift
  export CUDA_VISIBLE_DEVICES=$gpu
  if [ "$tests" ]; then
    python3 -m pytest -q -p no:cacheprovider -p no:xdist "$@" >"$OUT/tests$gpu.log" 2>&1
  fi
  local left=$((seconds - (SECONDS - started)))
  [ $left -gt 30 ] && fuzz "gpu$gpu" cuda $((first + 500000 + 50000 * gpu)) 2 $left
}

files=(tests/gpu/test_*.py)
rest=("${files[@]/tests\/gpu\/test_every_lowering.py/}")
fuzz cpu cpu "$first" "$jobs" "$seconds" &
if [ "$tests" ] && [ "$(nvidia-smi -L | wc -l)" -gt 2 ]; then # two that nothing else uses here
  (CUDA_VISIBLE_DEVICES=2,3 python3 -m pytest -q -p no:cacheprovider -p no:xdist \
    tests/gpu/test_where_graphs_work.py >"$OUT/two.log" 2>&1) &
fi
if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
  (on_gpu 0 tests/gpu/test_every_lowering.py) &
  # shellcheck disable=SC2068  # the file left out must not be an empty word
  (on_gpu 1 ${rest[@]}) &
else
  (on_gpu 0 tests/gpu) &
fi
wait
for log in "$OUT"/*.log; do
  echo "== $(basename "$log")"
  tail -n 12 "$log" | cut -c1-600
done
