"""Redis scripts of the answer ring: operations that must be atomic."""

# A ring is three keys: BASE:head (a hash: the generation, how many answers were ever put, the bytes of bodies),
# BASE:records (fixed-size records) and BASE:bodies (a hash: slot -> body). Which rings there are is kept beside them:
# `used` sorts them by their last use, `used` of a tenant its own, `sizes` has the bytes of each, of each tenant, of
# all. They are dropped least recently used first, whole: a ring that no longer exists costs nothing to drop.
_DROP = """
local SIZES, USED = 'ragkv:answers:sizes', 'ragkv:answers:used'
local function tenant_of(base) return string.match(base, '^ragkv:answers:([^:]*):') end
local function used_of(tenant) return 'ragkv:answers:' .. tenant .. ':used' end
local function drop(base)
  redis.call('DEL', base .. ':head', base .. ':records', base .. ':bodies')
  local tenant, size = tenant_of(base), tonumber(redis.call('HGET', SIZES, base) or 0)
  redis.call('HDEL', SIZES, base)
  redis.call('ZREM', USED, base)
  redis.call('ZREM', used_of(tenant), base)
  redis.call('HINCRBY', SIZES, 'all', 0 - size)
  if redis.call('HINCRBY', SIZES, 'tenant:' .. tenant, 0 - size) <= 0 then redis.call('HDEL', SIZES, 'tenant:' .. tenant) end
end
"""

# KEYS: head, records, bodies, the collection's floor.
# ARGV: base, generation, a record, its body, answers a ring holds, milliseconds to live, now, bytes of a tenant, of
# all.
# What an earlier generation left can never be asked for again; what comes late is of one itself.
PUT = (
    _DROP
    + """
local base, given, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7])
local held = tonumber(redis.call('HGET', KEYS[1], 'generation') or -1)
if held > given or tonumber(redis.call('GET', KEYS[4]) or -1) > given then return 0 end
if held < given or redis.call('HEXISTS', KEYS[1], 'bytes') == 0 then drop(base) end
redis.call('HSET', KEYS[1], 'generation', ARGV[2])
local slot = (redis.call('HINCRBY', KEYS[1], 'put', 1) - 1) % tonumber(ARGV[5])
local more = #ARGV[4] - redis.call('HSTRLEN', KEYS[3], slot)
local bodies = redis.call('HINCRBY', KEYS[1], 'bytes', more)
local size = redis.call('SETRANGE', KEYS[2], slot * #ARGV[3], ARGV[3]) + bodies
redis.call('HSET', KEYS[3], slot, ARGV[4])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
local tenant = tenant_of(base)
local grown = size - tonumber(redis.call('HGET', SIZES, base) or 0)
redis.call('HSET', SIZES, base, size)
redis.call('HINCRBY', SIZES, 'all', grown)
redis.call('HINCRBY', SIZES, 'tenant:' .. tenant, grown)
redis.call('ZADD', USED, now, base)
redis.call('ZADD', used_of(tenant), now, base)
local function shrink(rings, of, limit)
  while tonumber(redis.call('HGET', SIZES, of) or 0) > limit do
    local oldest = redis.call('ZRANGE', rings, 0, 0)[1]
    if not oldest then return end
    drop(oldest)
  end
end
shrink(used_of(tenant), 'tenant:' .. tenant, tonumber(ARGV[8]))
shrink(USED, 'all', tonumber(ARGV[9]))
return redis.call('EXISTS', KEYS[1])
"""
)

# KEYS: the collection's floor. ARGV: tenant, how its rings' names begin, the least generation that stays, seconds for
# which no older answer is taken, when the collection is gone: its counts. The floor never falls: what an overtaken call
# names may be older. Deleting goes first, because a Redis that is full refuses what writes, but for a script that has
# deleted.
FORGET = (
    _DROP
    + """
local dropped = 0
for _, base in ipairs(redis.call('ZRANGE', used_of(ARGV[1]), 0, -1)) do
  if string.sub(base, 1, #ARGV[2]) == ARGV[2] then
    local held = redis.call('HGET', base .. ':head', 'generation')
    if not held or tonumber(held) < tonumber(ARGV[3]) then
      drop(base)
      dropped = dropped + 1
    end
  end
end
if ARGV[5] ~= '' then redis.call('DEL', ARGV[5]) end
if tonumber(redis.call('GET', KEYS[1]) or -1) <= tonumber(ARGV[3]) then
  redis.pcall('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
end
return dropped
"""
)
