# SPDX-License-Identifier: Apache-2.0
export PYTHONPATH=$PWD/build/python
gpcd demo --block-size 16 --ram-blocks 100 --block-bytes 64k --key-file demo.key --disk demo.disk --disk-blocks 1000 --daemonize --pidfile gpcd.pid
python3 below.py        # computes 64 blocks, which gpcd writes, and evicts them from RAM
python3 below.py        # all 64 come up from the disk
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
gpcd demo --block-size 16 --ram-blocks 100 --block-bytes 64k --key-file demo.key --disk demo.disk --daemonize --pidfile gpcd.pid
python3 below.py        # all 64 come up, in a cache that was made anew
gpc-inspect stat demo | grep -A 1 '^TIER'         # what was brought up, and what was written
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
rm demo.disk
