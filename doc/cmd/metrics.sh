# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --vram-blocks 400 --ram-blocks 600 --metrics 9400 --daemonize --pidfile gpcd.pid
gpc-replay t/data/small.jsonl --name demo >replay.txt
curl -s http://127.0.0.1:9400/metrics | grep ^gpc_prefix_cache
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
