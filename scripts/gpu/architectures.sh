#!/bin/bash
# scripts/architectures.py on every GPU of a machine, many processes side by side.
#
#   bash scripts/gpu/architectures.sh JOBS SECONDS [arguments of architectures.py]
#
# Rows and logs lie in $OUT; their summary is printed. A job starts no new model type after SECONDS.
set -u
jobs=$1 seconds=$2
shift 2
own=$(mktemp -d)
gpus=$(nvidia-smi -L | wc -l)
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
for ((job = 0; job < jobs; job++)); do
  CUDA_VISIBLE_DEVICES=$((job % gpus)) python3 scripts/architectures.py --device cuda --share "$job/$jobs" \
    --seconds "$seconds" --out "$own/rows$job.jsonl" "$@" >"$own/log$job.txt" 2>&1 &
done
wait
cat "$own"/rows*.jsonl >"$OUT/rows.jsonl"
tail -n +1 "$own"/log*.txt >"$OUT/logs.txt"
python3 scripts/architectures.py --summary "$OUT/rows.jsonl" | cut -c1-700
