#pragma once

#include <boost/json.hpp>
#include <heddle/core/generation/generation.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <vector>

namespace heddle {

/// Keeps the steps of the search for one source as a tree of hypotheses.
class SearchTree final : public SearchObserver {
 public:
  struct Node {
    std::int64_t parent = -1;  ///< index of a node; -1 for the root
    std::int32_t token = -1;
    std::int64_t step = 0;  ///< 0 for the root
    double log_probability = 0;
    SearchStep::Fate fate = SearchStep::Fate::live;
  };

  SearchTree();
  void extended(SearchStep const& step) override;

  std::vector<Node> const& nodes() const { return nodes_; }
  /// The nodes from the root's child to the finished node of these tokens; empty if there is none.
  std::vector<std::int64_t> path_of(std::vector<std::int32_t> const& tokens) const;

 private:
  std::vector<Node> nodes_;
  std::vector<std::int64_t> live_;  ///< nodes
};

/// {"nodes": [[parent, piece, step, log probability, fate]], "hypotheses": [{"text", "score", "log_probability",
/// "path"}]}
boost::json::object to_json(SearchTree const& tree, std::vector<Hypothesis> const& hypotheses,
                            Tokenizer const& tokenizer);

}  // namespace heddle
