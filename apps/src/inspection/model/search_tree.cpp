#include "search_tree.hpp"

#include <algorithm>
#include <array>

namespace heddle {
namespace {

constexpr std::array fate_names{"live", "finished", "dropped"};

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

std::vector<std::int64_t> SearchTree::path_of(std::vector<std::int32_t> const& tokens) const {
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].fate != SearchStep::Fate::finished) {
      continue;
    }
    std::vector<std::int64_t> path;
    std::vector<std::int32_t> found;
    for (auto at = static_cast<std::int64_t>(index); at > 0; at = nodes_[static_cast<std::size_t>(at)].parent) {
      path.push_back(at);
      found.push_back(nodes_[static_cast<std::size_t>(at)].token);
    }
    // From the end token, which finished it, to the first one.
    if (std::equal(found.begin() + 1, found.end(), tokens.rbegin(), tokens.rend())) {
      std::ranges::reverse(path);
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
                                       node.log_probability, fate_names.at(static_cast<std::size_t>(node.fate))});
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
