#!/bin/sh
# senpai.sh INTERVAL RATIO TARGET GROUP... : reclaims from control groups as long as they do not feel it.
#
# What Meta's paper on TMO (ASPLOS 2022) says of its senpai, written anew: every INTERVAL seconds each group gives back
#     current memory * RATIO * max(0, 1 - pressure / TARGET)
# through memory.reclaim; pressure is the part of the last interval in which some task of the group waited for memory. RATIO and
# TARGET are millionths; the paper has 6 s, 500 and 1000. Above TARGET nothing is taken, and what is needed comes back by faults.
# Prints "group pressure current asked" for each look. Only what a shell has built in, so that it costs what such a loop must.
interval=$1 ratio=$2 target=$3
shift 3

# Sets `now` (1/100 s) and, of a group, `total` (us that some task has waited).
look() {
  read -r now _ </proc/uptime
  now=${now%.*}${now#*.}
  read -r line <"$1/memory.pressure"
  total=${line##*total=}
}

for group in "$@"; do
  look "$group"
  eval "last_${group##*/}=$total when_${group##*/}=$now"
done
while sleep "$interval"; do
  for group in "$@"; do
    look "$group"
    name=${group##*/}
    eval "last=\$last_$name when=\$when_$name last_$name=$total when_$name=$now"
    [ "$now" -gt "$when" ] || continue
    # us in 1/100 s: a hundred times that are millionths.
    pressure=$(((total - last) * 100 / (now - when)))
    read -r current <"$group/memory.current"
    asked=0
    if [ "$pressure" -lt "$target" ]; then
      asked=$((current * ratio / 1000000 * (target - pressure) / target))
      # It fails where not all of that could be had; the next look tells.
      echo "$asked" 2>/dev/null >"$group/memory.reclaim" || true
    fi
    echo "$name $pressure $current $asked"
  done
done
