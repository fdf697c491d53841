#!/bin/bash
# scripts/gpu/models.py on every GPU of a machine, several processes side by side.
#
#   bash scripts/gpu/models.sh JOBS SECONDS [arguments of models.py]
#
# Each job has its share of the cores, so that both compilers build on as many; samples are taken by one job
# of a GPU at a time. No job begins a model after SECONDS. The records lie in $OUT, and their table is printed.
set -u
jobs=$1 seconds=$2
shift 2
gpus=$(nvidia-smi -L | wc -l)
cores=$(($(nproc) / jobs))
together=$(mktemp -d)
export PYTHONUNBUFFERED=1
for ((job = 0; job < jobs; job++)); do
  CUDA_VISIBLE_DEVICES=$((job % gpus)) taskset -c $((job * cores))-$((job * cores + cores - 1)) \
    python3 scripts/gpu/models.py --together "$together" --budget "$seconds" --no-table "$@" \
    >"$together/log$job.txt" 2>&1 &
done
wait
tail -n +1 "$together"/log*.txt >"$OUT/logs.txt"
grep " ms\| failed" "$OUT/logs.txt" | cut -c1-400
python3 scripts/gpu/table.py "$OUT"/gpu-models.jsonl
