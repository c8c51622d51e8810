# SPDX-License-Identifier: Apache-2.0
redis-server --port 0 --unixsocket $PWD/demo.sock --save '' --maxmemory 64mb --maxmemory-policy allkeys-lru --daemonize yes && sleep 1
gpcd demo --block-size 16 --ram-blocks 100 --block-bytes 64k --key-file demo.key --remote redis:server=unix:$PWD/demo.sock --daemonize --pidfile gpcd.pid
python3 below.py        # computes 64 blocks, which gpcd puts to the server
python3 below.py        # all 64 come up from the server
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
redis-cli -s $PWD/demo.sock shutdown
rm demo.key
