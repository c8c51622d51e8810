# SPDX-License-Identifier: Apache-2.0
gpcd demo --block-size 16 --max-blocks 400 --ram-blocks 200 --block-bytes 64k --daemonize --pidfile demo.pid
gpcd demo --keep --device host --vram-blocks 100 --block-bytes 64k --pieces 64 --demote-to 0 --spill-ahead 50 --daemonize --pidfile keep.pid
cc bytes.c $(pkg-config --cflags --libs libgpc) -o bytes
./bytes; sleep 1        # publishes 63 blocks; the keeper spills 13 of them
gpc-inspect stat demo | grep -A 2 '^POOL  KIND'    # pool 0 in RAM, pool 1 in VRAM
./bytes                 # has all 63 blocks; the 13 come back from RAM
kill $(cat keep.pid) $(cat demo.pid) && sleep 1 && gpc-inspect rm demo
