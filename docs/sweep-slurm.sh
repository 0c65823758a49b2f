#!/bin/bash
#SBATCH --job-name=sweep --nodes=4 --ntasks-per-node=32 --cpus-per-task=1 --mem-per-cpu=2G --time=04:00:00
source /shared/me/venv/bin/activate
cd /shared/me/work
export XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=10

file=scheduler-$SLURM_JOB_ID.json
dask scheduler --interface ib0 --port 0 --no-dashboard --scheduler-file "$file" &
until [ -s "$file" ]; do sleep 1; done
srun dask worker --scheduler-file "$file" --interface ib0 --nthreads 1 --no-dashboard \
    --memory-limit 1.8GB --death-timeout 120 --local-directory "${TMPDIR:-/tmp}" &

address=$(python -c "import json, sys; print(json.load(open(sys.argv[1]))['address'])" "$file")
dalembert sweep spec.toml --out sweep.zarr --resume --scheduler "$address"
