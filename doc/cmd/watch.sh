# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --vram-blocks 1000 --daemonize --pidfile gpcd.pid
gpc-replay t/data/small.jsonl --name demo >replay.txt
gpc-inspect stat demo --watch 1 --limit 1       # a line each second, with rates; this one since the cache was made
gpc-inspect peers demo                        # who holds what
gpc-inspect check demo
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
