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
# JOB_LOGS  directory of one log per job (default: ./job_logs)
# RESTARTS  how often each actor, and a learner that is the only one, is started
#           again after it was killed or failed (default: 3)
#
# Ends with 0 once training is done or after ctrl-C, when all jobs have saved.
# A learner that fails for good stops the rest.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package

actors="${ACTORS:-2}" learners="${LEARNERS:-1}" port="${PORT:-8000}"
restarts="${RESTARTS:-3}" logs="${JOB_LOGS:-job_logs}"
for name in actors learners port restarts; do
  [[ "${!name}" =~ ^[0-9]+$ ]] || fail "${name^^}=${!name} is no number."
done
((learners >= 1)) || fail "LEARNERS=$learners cannot work: it takes one."
mkdir -p "$logs" || fail "JOB_LOGS=$logs cannot be made."
hosts="$(seq -s, -f 'localhost:%.0f' "$port" "$((port + learners - 1))")"
flags=(--learner_hosts="$hosts" --num_actors="$actors" "$@")
# TensorFlow connects learners without a password, which takes consent; other
# users of this machine are kept out by its firewall alone.
((learners == 1)) || flags+=(--insecure_network)

declare -A job_of=() # By process id.
declare -A failures=()
stopping=
deadline=0 # Of the jobs that are left, in SECONDS.

start() { # start JOB TASK
  local priority=()
  # Where cores are few, learners come first: actors would only fill the queue.
  [[ $1 == actor ]] && priority=(nice -n 5)
  # A process group of its own is out of reach of ctrl-C, so that the signal
  # that a job gets is one, and from here.
  set -m
  "${priority[@]}" "$python" -m scalable_agent.experiment --job_name="$1" \
    --task="$2" "${flags[@]}" </dev/null >>"$logs/$1-$2.log" 2>&1 &
  set +m
  job_of[$!]="$1 $2"
}

stop_all() {
  stopping=1
  ((${#job_of[@]})) && kill -TERM "${!job_of[@]}" 2>/dev/null
}

trap stop_all INT TERM HUP

echo "Learners on $hosts, $actors actors, logs in $logs" >&2
rm -f "$logs"/{learner,actor}-*.log
for ((i = 0; i < learners; i++)); do start learner $i; done
for ((i = 0; i < actors; i++)); do start actor $i; done
# The learner's log without times, to its last line: ctrl-C is not for these two.
# `tail` alone is to say nothing of its own.
trap '' INT
tail --retry -n +1 -s .2 -f "$logs/learner-0.log" \
  > >(sed -u 's/^[IWE][0-9][^]]*] //' >&2) 2>/dev/null &
tail_pid=$!
trap stop_all INT
trap 'sleep .5; kill "$tail_pid" 2>/dev/null' EXIT

status=0
learners_left=$learners
ended() { # ended PID CODE
  local job task code="$2"
  read -r job task <<<"${job_of[$1]}"
  unset "job_of[$1]"
  if ((code == 0)); then
    if [[ $job == learner ]] && ((--learners_left == 0)); then
      # Actors that lost the learner before it was done would wait for ever.
      deadline=$((SECONDS + 20))
    fi
  elif [[ -z "$stopping" ]]; then
    echo "$job $task has ended with code $code:" >&2
    grep -v '^ *$' "$logs/$job-$task.log" | tail -n 3 >&2
    if [[ $job == actor || $learners == 1 ]] && ((learners_left)) &&
      ((${failures[$job $task]:-0} < restarts)); then
      ((failures[$job $task] = ${failures[$job $task]:-0} + 1))
      sleep 1
      [[ -n "$stopping" ]] || start "$job" "$task"
    else
      echo "Error: $job $task has failed, stopping all jobs." >&2
      status=1
      stop_all
    fi
  fi
}

# Looks, instead of `wait -n`, to which jobs are lost that end while another one is
# being started again.
while ((${#job_of[@]})); do
  for pid in "${!job_of[@]}"; do
    kill -0 "$pid" 2>/dev/null && continue
    wait "$pid" 2>/dev/null
    ended "$pid" $?
  done
  if ((deadline && SECONDS >= deadline)); then
    deadline=0
    stop_all
  fi
  sleep .3 &
  wait $!
done
exit "$status"
