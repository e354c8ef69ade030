-- freeing: what ends tasks goes on when the server is out of memory. Redis refuses only a script's first write for that.
redis.call('DEL', KEYS[2])
