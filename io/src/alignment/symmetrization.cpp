#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/alignment/word_aligner.hpp>
#include <heddle/io/text/text.hpp>
#include <iterator>
#include <set>

namespace heddle {

namespace {

using Link = WordLinks::value_type;
using Links = std::set<Link>;

/// Links that grow from those of both directions towards those of one (grow-diag-final-and).
class Growth {
 public:
  Growth(Links links, Links const& candidates) : links_(std::move(links)), candidates_(candidates) {
    for (Link const& link : links_) {
      sources_.insert(link.first);
      targets_.insert(link.second);
    }
  }

  /// Adds candidates beside a link, of which a word has none yet, until there is none to add.
  void grow() {
    for (bool added = true; added;) {
      added = false;
      for (Link const& link : Links(links_)) {
        for (std::int32_t source = link.first - 1; source <= link.first + 1; ++source) {
          for (std::int32_t target = link.second - 1; target <= link.second + 1; ++target) {
            bool const is_free = !sources_.contains(source) || !targets_.contains(target);
            added = (is_free && candidates_.contains({source, target}) && add({source, target})) || added;
          }
        }
      }
    }
  }
  /// Adds those of `links` of which both words have none yet.
  void finish(Links const& links) {
    for (Link const& link : links) {
      if (!sources_.contains(link.first) && !targets_.contains(link.second)) {
        add(link);
      }
    }
  }
  Links const& links() const { return links_; }

 private:
  bool add(Link const& link) {
    sources_.insert(link.first);
    targets_.insert(link.second);
    return links_.insert(link).second;
  }

  Links links_;
  Links const& candidates_;
  std::set<std::int32_t> sources_, targets_;  ///< those with a link
};

}  // namespace

WordLinks symmetrize(std::vector<std::int32_t> const& forward, std::vector<std::int32_t> const& reverse,
                     Symmetrization symmetrization) {
  Links first;
  Links second;
  for (std::size_t target = 0; target < forward.size(); ++target) {
    if (forward[target] >= 0) {
      first.insert({forward[target], static_cast<std::int32_t>(target)});
    }
  }
  for (std::size_t source = 0; source < reverse.size(); ++source) {
    if (reverse[source] >= 0) {
      second.insert({static_cast<std::int32_t>(source), reverse[source]});
    }
  }
  Links both;
  std::ranges::set_intersection(first, second, std::inserter(both, both.end()));
  Links either = first;
  either.insert(second.begin(), second.end());
  Growth growth(both, either);
  switch (symmetrization) {
    case Symmetrization::forward:
      return {first.begin(), first.end()};
    case Symmetrization::reverse:
      return {second.begin(), second.end()};
    case Symmetrization::intersection:
      return {both.begin(), both.end()};
    case Symmetrization::either:
      return {either.begin(), either.end()};
    case Symmetrization::grow_diag_final_and:
      growth.grow();
      growth.finish(first);
      growth.finish(second);
  }
  return {growth.links().begin(), growth.links().end()};
}

std::string pharaoh_text(WordLinks const& links) {
  std::string text;
  for (auto const& [source, target] : links) {
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", source, target);
  }
  return text;
}

WordLinks LinkLine::links(std::int64_t sources, std::int64_t targets) const {
  WordLinks links;
  for (std::string_view const link : split_words(text)) {
    std::size_t const dash = std::min(link.find('-'), link.size());
    auto const source = parse_number<std::int32_t>(link.substr(0, dash));
    auto const target = parse_number<std::int32_t>(link.substr(std::min(dash + 1, link.size())));
    if (!source || !target || *source < 0 || *target < 0 || *source >= sources || *target >= targets) {
      throw DataError(
          "{}, line {}: \"{}\" is not a link SOURCE-TARGET of the lines' {} and {} words, which are counted from 0",
          file, line, link, sources, targets);
    }
    links.emplace_back(*source, *target);
  }
  return links;
}

void AlignmentAgreement::add(WordLinks const& links, WordLinks const& reference) {
  WordLinks shared;
  std::ranges::set_intersection(links, reference, std::back_inserter(shared));
  found += std::ssize(links);
  wanted += std::ssize(reference);
  both += std::ssize(shared);
}

}  // namespace heddle
