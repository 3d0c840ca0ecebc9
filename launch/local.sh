#!/usr/bin/env bash
# Runs learners and actors as jobs of their own on this machine. Arguments are
# passed on to all of them:
#
#   ACTORS=4 launch/local.sh --level_name=pong --envs_per_actor=8 \
#       --logdir=/tmp/pong
#
# ACTORS    actor jobs (default: 2)
# LEARNERS  learner jobs (default: 1)
# PORT      of learner 0; the others take the ports after it (default: 8000)
# JOB_LOGS  directory of one log per job, to which each run adds
#           (default: ./job_logs)
# RESTARTS  how often each actor, and a learner that is the only one, is started
#           again after it was killed or failed (default: 3)
# STOP_SECS how long jobs may take to save and end when they are stopped; then
#           they are killed (default: 60)
#
# Ends with 0 once training is done or after ctrl-C, when all jobs have saved.
# A learner that fails for good stops the rest.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package

actors="${ACTORS:-2}" learners="${LEARNERS:-1}" port="${PORT:-8000}"
restarts="${RESTARTS:-3}" logs="${JOB_LOGS:-job_logs}"
stop_secs="${STOP_SECS:-60}"
for name in actors learners port restarts stop_secs; do
  [[ "${!name}" =~ ^[0-9]+$ ]] || fail "${name^^}=${!name} is no number."
  printf -v "$name" %d "$((10#${!name}))"  # Bash takes 010 for eight.
done
((learners >= 1)) || fail "LEARNERS=$learners cannot work: it takes one."
mkdir -p "$logs" || fail "JOB_LOGS=$logs cannot be made."
hosts="$(seq -s, -f 'localhost:%.0f' "$port" "$((port + learners - 1))")"
flags=(--learner_hosts="$hosts" --num_actors="$actors" "$@")
# TensorFlow connects learners without a password, which takes consent; other
# users of this machine are kept out by its firewall alone.
((learners == 1)) || flags+=(--insecure_network)

declare -A job_of=() # By process id.
declare -A begin_of=() # By job: where in its log its last start begins.
declare -A failures=()
stopping=
deadline=0 # Of the jobs that are left, in SECONDS.
kill_at= # When those are killed that were told to stop, in SECONDS.
missing_until=0 # How long actors may be missing, in SECONDS.
declare -A came_back=() # The tasks of those that were started since.

start() { # start JOB TASK
  [[ -z "$stopping" ]] || return
  local log="$logs/$1-$2.log" priority=()
  # Where cores are few, learners come first: actors would only fill the queue.
  [[ $1 == actor ]] && priority=(nice -n 5)
  # A job that was killed may have left half a line.
  [[ -z "$(tail -c 1 "$log" 2>/dev/null)" ]] || echo >>"$log"
  echo "== $1 $2, started at $(date '+%F %T')" >>"$log"
  begin_of[$1 $2]="$(wc -c <"$log")"
  # A process group of its own is out of reach of ctrl-C, so that the signal
  # that a job gets is one, and from here.
  set -m
  "${priority[@]}" "$python" -m scalable_agent.experiment --job_name="$1" \
    --task="$2" "${flags[@]}" </dev/null >>"$log" 2>&1 &
  set +m
  job_of[$!]="$1 $2"
  [[ $1 == actor ]] && came_back[$2]=1
  # It may have missed a signal that came meanwhile.
  [[ -z "$stopping" ]] || stop_all
}

stop_all() {
  stopping=1
  ((${#job_of[@]})) && kill -TERM "${!job_of[@]}" 2>/dev/null
  : "${kill_at:=$((SECONDS + stop_secs))}"
}

kill_all() {
  local pids=("${!job_of[@]}")
  echo "Error: after $stop_secs s (STOP_SECS) these have not ended, and are" \
    "killed: $(IFS=,; echo "${job_of[*]}")." >&2
  # With what they have started.
  kill -KILL -- "${pids[@]/#/-}" 2>/dev/null
}

trap stop_all INT TERM HUP

echo "Learners on $hosts, $actors actors, logs in $logs" >&2
for ((i = 0; i < learners; i++)); do start learner $i; done
for ((i = 0; i < actors; i++)); do start actor $i; done
# The learner's log of this run without times, to its last line: ctrl-C is not
# for these two. `tail` alone is to say nothing of its own.
trap '' INT
tail -c "+$((${begin_of[learner 0]:-0} + 1))" -s .2 -f \
  "$logs/learner-0.log" > >(sed -u 's/^[IWE][0-9][^]]*] //' >&2) 2>/dev/null &
tail_pid=$!
trap stop_all INT
trap 'sleep .5; kill "$tail_pid" 2>/dev/null' EXIT

status=0
learners_left=$learners
ended() { # ended PID CODE
  local job task code="$2" was_stopping="$stopping"
  read -r job task <<<"${job_of[$1]}"
  unset "job_of[$1]"
  # A job that has something to save listens to SIGTERM, which ends others.
  [[ -n "$was_stopping" ]] && ((code == 143)) && code=0
  if ((code == 0)); then
    if [[ $job == learner ]] && ((--learners_left == 0)); then
      # Actors that lost the learner before it was done would wait for ever.
      deadline=$((SECONDS + 20))
    fi
    return
  fi
  echo "$job $task has ended with code $code:" >&2
  tail -c "+$((${begin_of[$job $task]} + 1))" "$logs/$job-$task.log" |
    grep -v '^ *$' | tail -n 3 >&2
  if [[ -n "$was_stopping" ]]; then
    status=1
  elif ((learners_left == 0)); then
    : # Training is done.
  elif [[ $job == actor || $learners == 1 ]] &&
    ((${failures[$job $task]:-0} < restarts)); then
    ((failures[$job $task] = ${failures[$job $task]:-0} + 1))
    [[ $job == actor ]] || came_back=()
    sleep 1
    start "$job" "$task"
    [[ $job == actor ]] || missing_until=$((SECONDS + 30))
  else
    echo "Error: $job $task has failed, stopping all jobs." >&2
    status=1
    stop_all
  fi
}

# A learner that fails at its very end has told the actors that training is
# done: they have ended, or are about to, and the next learner needs them.
start_missing_actors() {
  local i
  for ((i = 0; i < actors; i++)); do
    [[ -n "${came_back[$i]:-}" || " ${job_of[*]:-} " == *" actor $i "* ]] &&
      continue
    start actor $i
  done
}

# Looks, instead of `wait -n`, to which jobs are lost that end while another one
# is being started again.
while ((${#job_of[@]})); do
  for pid in "${!job_of[@]}"; do
    kill -0 "$pid" 2>/dev/null && continue
    wait "$pid" 2>/dev/null
    ended "$pid" $?
  done
  if ((learners_left && SECONDS < missing_until)); then
    start_missing_actors
  fi
  if ((deadline && SECONDS >= deadline)); then
    deadline=0
    stop_all
  fi
  if [[ -n "$kill_at" ]] && ((SECONDS >= kill_at)); then
    kill_at=
    kill_all
  fi
  sleep .3 &
  wait $!
done
exit "$status"
