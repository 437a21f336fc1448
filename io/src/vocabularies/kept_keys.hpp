#pragma once

#include <boost/json/fwd.hpp>

namespace heddle {

/// Copies the keys of config.json that are about the vocabulary or about generation, also of the objects that both
/// have.
void copy_kept_keys(boost::json::object const& from, boost::json::object& into);

/// Repeats these keys in the objects that are named after stacks.
void repeat_kept_keys(boost::json::object& config);

}  // namespace heddle
