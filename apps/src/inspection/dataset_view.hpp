#pragma once

#include <boost/json.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <vector>

#include "inspection/model/model_view.hpp"

namespace heddle {

/// {"name", "content", "samples", "sides": [{"name", "tokens", "histogram": [[from, to, samples]]}], "examples":
/// [[text, …]], "pack": {"sides": [{"name", "lengths"}]}}: the pack is that of the first samples.
boost::json::object to_json(Dataset const& dataset, std::int64_t examples);

/// Short samples from the beginning of a dataset, at most `count`.
std::vector<SentenceText> example_sentences(Dataset const& dataset, std::size_t count);

}  // namespace heddle
