"""Bugs planted in what goes on with the streams of frontends that died."""

from functools import partial

from simulation.planted.mutant import FRONTEND, GROUP, Mutant
from simulation.planted.mutant import mutant as any_mutant

KEPT = FRONTEND + "http.kept_streams."
MEMBERS = FRONTEND + "group."
mutant = partial(any_mutant, histories=GROUP)
TAKEOVERS: list[Mutant] = [
    mutant(
        "events_read_twice",
        "A reading that goes on elsewhere begins with what was read before the loss.",
        MEMBERS + "streams",
        "                    self._first += len(ready)\n",
        "                    self._first += 0\n",
        "each_event_once",
    ),
    mutant(
        "event_skipped",
        "A reading that goes on elsewhere leaves an event out.",
        MEMBERS + "streams",
        "            found = await self._open_at(self._first)\n",
        "            found = await self._open_at(self._first + 1)\n",
        "each_event_once",
    ),
    mutant(
        "seed_drawn_again",
        "Tokens that are computed again have another seed.",
        KEPT + "pins",
        '        return int.from_bytes(self._derived(b"seed %d" % prompt, _SEED_BYTES), "big")\n',
        '        return int.from_bytes(os.urandom(_SEED_BYTES), "big")\n',
        "bits_are_equal",
        "streams_survive",
    ),
    mutant(
        "usage_forgotten",
        "The token counts at the end are not added to the recipe.",
        KEPT + "recipes",
        "            self.put(replace(recipe, usage=usage))\n",
        "            self.put(recipe)\n",
        "bits_are_equal",
    ),
    mutant(
        "scheduler_asked_once",
        "A stream is computed again although its scheduler only has to notice the loss.",
        KEPT + "takeovers",
        '                if error.field != "request_id":\n',
        "                if error.field:\n",
        "streams_survive",
    ),
    mutant(
        "computed_where_it_is_not_exact",
        "A stream is computed again where another run gives other tokens.",
        KEPT + "takeovers",
        "        if not recipe.numerics or remaking",
        "        if recipe.numerics and remaking",
        "bits_are_equal",
    ),
    mutant(
        "recipes_not_renewed",
        "The recipes of streams that run for long expire.",
        MEMBERS + "recipes",
        "                await self._renew_all()\n",
        "                pass\n",
        "recipes_live",
        "streams_survive",
    ),
    mutant(
        "recipe_never_kept",
        "A recipe is kept nowhere, and nothing says so.",
        MEMBERS + "recipes",
        "                await self._peers[name].keep_recipe(recipe)\n",
        "                pass\n",
        "streams_survive",
    ),
    mutant(
        "every_tenant_finds_it",
        "Another tenant can read a stream.",
        KEPT + "local_streams",
        "        if stream is None or stream.tenant != tenant:\n",
        "        if stream is None:\n",
        "tenants_apart",
    ),
    mutant(
        "key_not_noted_at_the_next",
        "A key is forgotten with its owner.",
        MEMBERS + "keys",
        "            _, noted, _ = await self._first(claim, rest)\n",
        "            noted = claim.holder\n",
        "keys_once",
    ),
    mutant(
        "maker_unknown_to_those_that_come_back",
        "A holder that was away does not learn who went on with a stream meanwhile.",
        MEMBERS + "recipes",
        "            recipe = replace(recipe, maker_name=self._name)\n",
        "            pass\n",
        "one_maker",
        "bits_are_equal",
    ),
    mutant(
        "holders_ask_no_other",
        "A holder makes a stream again without asking those before it.",
        MEMBERS + "streams",
        "        if not self._held.has(stream_id) and self._held.can_make(stream_id, tenant):\n",
        "        if False:\n",
        "one_maker",
    ),
]
