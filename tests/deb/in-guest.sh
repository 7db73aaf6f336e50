# What tests/deb/guest runs in its guest, as a service of the systemd there: the package's life on a machine, with the units as
# they are shipped. A line in `checks` for each thing that must be so.

out=/run/test/out
mkdir "$out"
stty -F /dev/ttyS1 raw -echo
echo @BEGIN >/dev/ttyS1
node=isotherm-node.service

# check TEXT COMMAND...: notes whether the command succeeds, and what it said if not.
check() {
  local text=$1
  shift
  if "$@" >"$out/said" 2>&1; then
    echo "ok $text"
  else
    echo "FAIL $text: $(tail -n 6 "$out/said" | tr '\n' ' ')"
  fi | tee -a "$out/checks"
}

# within SECONDS COMMAND...: whether it succeeds at some time until then.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 1
  done
}

fails() { ! "$@"; }
pid_of() { systemctl show -P MainPID "$1"; }
# Whether it runs, as another process than that.
runs_anew() { systemctl is-active "$1" && [ "$(pid_of "$1")" != "$2" ] && [ "$(pid_of "$1")" != 0 ]; }
journal_has() { journalctl -u "$1" --no-pager -o cat | grep -F "$2"; }
journal_times() { [ "$(journalctl -u "$1" --no-pager -o cat | grep -cF "$2")" = "$3" ] || { journalctl -u "$1" --no-pager -o cat | tail -n 5; false; }; }
ps_asks() { isotherm ps 2>&1 | tee "$out/ps" | grep -F "watched by isotherm node (pid $(pid_of $node))"; }
status_is_of() { isotherm ctl status --socket /run/isotherm/node.sock | tee "$out/status" | grep -F "pid $(pid_of $node),"; }
metrics() {
  exec 3<>/dev/tcp/127.0.0.1/9377
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
  cat <&3 | grep -F "$1"
}
version_is() { dpkg-query -W -f '${Status} ${Version}\n' isotherm | tee "$out/version" | grep -E "$1"; }
installed() { dpkg "$@" </dev/null 2>&1 | tee -a "$out/dpkg"; return "${PIPESTATUS[0]}"; }
nobody_runs() { ! pgrep_isotherm; }
pgrep_isotherm() { grep -l "^/usr/bin/isotherm" /proc/[0-9]*/cmdline 2>/dev/null; }
left_files() { find / -xdev -name '*isotherm*' -not -path '/proc/*' -not -name 'isotherm-test.service' -print; find /run /var /etc -name '*isotherm*' -not -path '/run/test/*' -not -name 'isotherm-test.service' -not -path '/run/systemd/*' -print; }
nothing_left() { [ -z "$(left_files | tee "$out/left")" ] || { cat "$out/left"; false; }; }

systemd-detect-virt >"$out/virt"
check "systemd boots here" systemctl is-active --wait basic.target

# A first installation.
check "it is installed" installed -i /run/test/before.deb
check "nothing is enabled by that" fails systemctl is-enabled $node isotherm-hint-host.service isotherm-hint-guest.service
check "and nothing runs" fails systemctl is-active $node
check "systemd has nothing to say against the units" sh -c \
  'said=$(systemd-analyze verify --man=no /usr/lib/systemd/system/isotherm*.service 2>&1); [ -z "$said" ] || { echo "$said"; false; }'
for unit in $node isotherm-hint-host.service isotherm-hint-guest.service isotherm@x.service; do
  systemd-analyze security --no-pager "$unit" | tail -n 1 >>"$out/security"
  check "exposure below 4: $(systemd-analyze security --no-pager "$unit" | sed -n 's/.*Overall exposure/overall exposure/p')" \
    systemd-analyze security --no-pager --threshold=40 "$unit"
done

# Something to watch, which does not belong to the package.
cp /usr/bin/isotherm /run/test/workload
systemd-run --quiet --unit=workload /run/test/workload workload hotspot --size 64M --hot 25% --seed 7 --rate 50000 --duration 10h
pid_of workload >"$out/workload"

# As shipped but for the budget: 1 % of an emulated processor is little.
budget="--cpu-budget 20%"
echo "ARGS=\"--metrics 9377 $budget\"" >/etc/isotherm/node.env
check "the agent is enabled and ready (Type=notify)" systemctl enable --now $node
check "and active at once" systemctl is-active $node
check "its status is the running node's" within 30 status_is_of
check "ps asks it" within 120 ps_asks
check "metrics are there at the port" within 30 metrics 'isotherm_memory_resident_bytes'
check "the journal has its beginning" journal_has $node "watching all processes"
check "it is confined" grep -E '^sandbox +on' "$out/status"

# Rules, and what a reload says of them.
echo "ARGS=\"-c /etc/isotherm/node.toml --metrics 9377 $budget\"" >/etc/isotherm/node.env
printf '[[rule]]\nname = "first"\ngroups = "workload.service"\naction = "reclaim"\ndry_run = true\n' >>/etc/isotherm/node.toml
before=$(pid_of $node)
check "it starts again" systemctl restart $node
check "as another process" runs_anew $node "$before"
check "which goes on with the page history" within 30 journal_has $node "page history of"
sed -i 's/name = "first"/name = "second"/' /etc/isotherm/node.toml
before=$(pid_of $node)
check "a file of rules is reloaded" systemctl reload $node
check "which the journal says" within 30 journal_has $node "read again: "
check "and the status has the new rule" within 60 sh -c 'isotherm ctl status --socket /run/isotherm/node.sock --json | grep -F second'
cp /etc/isotherm/node.toml "$out/good.toml"
echo 'nonsense = 1' >>/etc/isotherm/node.toml
check "a file with a mistake is no reason to end" systemctl reload $node
check "the journal says what is wrong" within 30 journal_has $node "the rules stay as they were"
cp "$out/good.toml" /etc/isotherm/node.toml
check "and the same process goes on" test "$(pid_of $node)" = "$before"

# Hanging: 60 s without a sign of life, as the unit says; then 10 s until it is started again.
kill -STOP "$before"
check "an agent that hangs is ended and started again" within 180 runs_anew $node "$before"
check "by the watchdog" journal_has $node "Watchdog timeout"
check "once" test "$(systemctl show -P NRestarts $node)" = 1

# The other services.
check "the host of hints is active" systemctl enable --now isotherm-hint-host.service
check "and listens" within 30 test -S /run/isotherm/guests
printf '[target]\npid = [%s]\n[[scheme]]\naction = "stat"\n' "$(cat "$out/workload")" >/etc/isotherm/work.toml
check "an instance for one target is active" systemctl enable --now isotherm@work.service
check "and answers" within 60 isotherm ctl status --socket /run/isotherm/work.sock
check "it is reloaded as soon as it has started" sh -c 'systemctl restart isotherm@work && systemctl reload isotherm@work'
check "which it says" within 30 journal_has isotherm@work "reloaded: 1 scheme"
check "and has not ended for it" test "$(systemctl show -P NRestarts isotherm@work)" = 0
# Without a choice it lists who runs: these three, and not the socket at which virtual machines call.
check "all of them are found" within 60 sh -c "isotherm ctl status 2>&1 | tee $out/all | grep -c '^  /run/isotherm/.*: pid ' | grep -x 3"
check "and nobody else" fails grep -F 'does not answer' "$out/all"
# There is no port to the host here: it ends, says so, and is not started without end.
systemctl start isotherm-hint-guest.service || true
journalctl -u isotherm-hint-guest --no-pager -o cat >"$out/hint-guest"
check "the guest's agent says what it lacks" grep -i "isotherm.hint" "$out/hint-guest"

# An upgrade.
for unit in $node isotherm-hint-host isotherm@work; do pid_of "$unit"; done >"$out/before"
readarray -t before <"$out/before"
history=$(journalctl -u $node --no-pager -o cat | grep -c "going on with")
check "it is upgraded" installed --force-confold -i /run/test/after.deb
check "to the higher version" version_is '^install ok installed .*\+next$'
check "the agent runs anew" within 30 runs_anew $node "${before[0]}"
check "the host of hints does" within 30 runs_anew isotherm-hint-host "${before[1]}"
check "the instance does" within 30 runs_anew isotherm@work "${before[2]}"
check "all are enabled still" systemctl is-enabled $node isotherm-hint-host isotherm@work
check "the edited file of rules is there" grep -F second /etc/isotherm/node.toml
check "the page history is" within 60 journal_times $node "going on with" $((history + 1))
check "ps asks the new one" within 120 ps_asks

# The end.
check "it is removed" installed -r isotherm
check "nothing runs" nobody_runs
check "nothing is enabled" sh -c '! ls /etc/systemd/system/*.wants/isotherm*'
check "settings and what was collected stay" test -e /etc/isotherm/node.toml -a -e /etc/isotherm/node.env -a -d /var/lib/isotherm
check "it is purged" installed -P isotherm
check "and nothing is left" nothing_left
check "nothing has failed but the guest's agent" sh -c \
  'systemctl --failed --plain --no-legend | grep -v -e isotherm-hint-guest -e getty | { ! grep .; }'

journalctl --no-pager -o short-monotonic >"$out/journal"
tar -C "$out" -cz -f /run/test/out.tgz .
printf '@RESULT 0 %d\n' "$(stat -c %s /run/test/out.tgz)" >/dev/ttyS1
cat /run/test/out.tgz >/dev/ttyS1
