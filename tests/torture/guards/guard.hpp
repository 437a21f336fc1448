#pragma once

namespace heddle::test {

/// False for the guard that the environment variable HEDDLE_GUARD_REMOVED names; says so once on standard error.
bool guard(char const* name);

}  // namespace heddle::test
