# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --vram-blocks 10000 --daemonize --pidfile gpcd.pid
python3 worker.py; python3 worker.py    # the second one finds all 63 blocks
kill $(cat gpcd.pid)
gpc-inspect rm demo
