#include "search_tree.hpp"

#include <algorithm>

namespace heddle {
namespace {

std::string_view name_of(SearchStep::Fate fate) {
  switch (fate) {
    case SearchStep::Fate::live:
      return "live";
    case SearchStep::Fate::finished:
      return "finished";
    case SearchStep::Fate::dropped:
      break;
  }
  return "dropped";
}

}  // namespace

SearchTree::SearchTree() : nodes_{Node{}}, live_{0} {}

void SearchTree::extended(SearchStep const& step) {
  std::vector<std::int64_t> next;
  for (SearchStep::Extension const& extension : step.extensions) {
    if (extension.fate == SearchStep::Fate::live) {
      next.push_back(static_cast<std::int64_t>(nodes_.size()));
    }
    nodes_.push_back(
        {live_.at(extension.parent), extension.token, step.length + 1, extension.log_probability, extension.fate});
  }
  live_ = std::move(next);
}

std::vector<std::int64_t> SearchTree::tokens_path(std::int64_t node) const {
  std::vector<std::int64_t> path;
  for (; node > 0; node = nodes_[static_cast<std::size_t>(node)].parent) {
    path.push_back(node);
  }
  std::ranges::reverse(path);
  return path;
}

std::vector<std::int64_t> SearchTree::path_of(std::vector<std::int32_t> const& tokens) const {
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].fate != SearchStep::Fate::finished ||
        nodes_[index].step != static_cast<std::int64_t>(tokens.size()) + 1) {
      continue;
    }
    auto path = tokens_path(static_cast<std::int64_t>(index));
    bool const same = std::equal(
        tokens.begin(), tokens.end(), path.begin(), path.end() - 1,
        [&](std::int32_t token, std::int64_t node) { return nodes_[static_cast<std::size_t>(node)].token == token; });
    if (same) {
      return path;
    }
  }
  return {};
}

boost::json::object to_json(SearchTree const& tree, std::vector<Hypothesis> const& hypotheses,
                            Tokenizer const& tokenizer) {
  boost::json::array nodes;
  for (SearchTree::Node const& node : tree.nodes()) {
    nodes.push_back(boost::json::array{node.parent, node.token < 0 ? "" : tokenizer.piece(node.token), node.step,
                                       node.log_probability, name_of(node.fate)});
  }
  boost::json::array results;
  for (Hypothesis const& hypothesis : hypotheses) {
    results.push_back({{"text", tokenizer.decode(hypothesis.tokens)},
                       {"score", hypothesis.score},
                       {"log_probability", hypothesis.log_probability},
                       {"path", boost::json::value_from(tree.path_of(hypothesis.tokens))}});
  }
  return {{"nodes", std::move(nodes)}, {"hypotheses", std::move(results)}};
}

}  // namespace heddle
