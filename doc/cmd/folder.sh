# SPDX-License-Identifier: Apache-2.0
mkdir demo.store
gpcd demo --block-size 16 --ram-blocks 100 --block-bytes 64k --key-file demo.key --remote folder:dir=$PWD/demo.store --daemonize --pidfile gpcd.pid
python3 below.py        # computes 64 blocks, which gpcd puts to the store
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
gpcd demo --block-size 16 --ram-blocks 100 --block-bytes 64k --key-file demo.key --remote folder:dir=$PWD/demo.store --daemonize --pidfile gpcd.pid
python3 below.py        # a cache that knows nothing gets all 64 from the store
kill $(cat gpcd.pid) && sleep 1 && gpc-inspect rm demo
rm -r demo.store
