#include "shortlisted_outputs.hpp"

#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/generation/shortlist.hpp>

namespace heddle {
namespace {

/// Uploads the values; the tensor's memory grows where it must.
void upload(std::vector<std::int32_t> const& values, UploadedTensor& memory) {
  std::int64_t const count = std::ssize(values);
  if (memory.tensor().empty() || memory.tensor().size() < count) {
    memory = UploadedTensor(DType::int32, {2 * count});
  }
  copy_from_host(memory.host().rows(0, count), values.data());
  memory.upload(count);
}

}  // namespace

void ShortlistedOutputs::select(LayerContext& context, std::list<Sentence>& live, std::list<Sentence>& entering) {
  std::size_t const count = live.size() + entering.size();
  if (count == 0 || (entering.empty() && 2 * count > sentences_)) {
    return;
  }
  sentences_ = count;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> columns;
  std::vector<std::int32_t> column_of(static_cast<std::size_t>(members_.front().model->target_vocabulary()), -1);
  for (std::list<Sentence>* const sentences : {&live, &entering}) {
    for (Sentence& sentence : *sentences) {
      sentence.first_column = std::ssize(columns);
      for (std::int32_t const token : sentence.shortlist) {
        std::int32_t& column = column_of[static_cast<std::size_t>(token)];
        if (column < 0) {
          column = static_cast<std::int32_t>(tokens.size());
          tokens.push_back(token);
        }
        columns.push_back(column);
      }
    }
  }
  // Products have one shape, whatever the number of tokens.
  tokens.resize(static_cast<std::size_t>(rounded_up(std::ssize(tokens), OutputSelection::block)), tokens.front());
  std::int64_t const selected = std::ssize(tokens);
  upload(tokens, tokens_);
  upload(columns, columns_);
  for (std::size_t member = 0; member < members_.size(); ++member) {
    members_[member].model->select_outputs(context, tokens_.tensor().rows(0, selected), selections_[member]);
  }
}

std::vector<RankedColumns> ShortlistedOutputs::columns(std::list<Sentence> const& sentences) const {
  std::vector<RankedColumns> columns;
  for (Sentence const& sentence : sentences) {
    columns.push_back({std::ssize(sentence.live),
                       columns_.tensor().rows(sentence.first_column, std::ssize(sentence.shortlist)),
                       sentence.shortlist});
  }
  return columns;
}

std::vector<std::int32_t> Shortlist::tokens(std::span<std::int32_t const> source,
                                            std::span<std::int32_t const> ends) const {
  std::vector<std::int32_t> all = always;
  for (std::int32_t const token : source) {
    if (auto const index = static_cast<std::size_t>(token); index < translations.size()) {
      all.insert(all.end(), translations[index].begin(), translations[index].end());
    }
  }
  std::erase_if(all, [&](std::int32_t token) { return std::ranges::find(ends, token) != ends.end(); });
  std::ranges::sort(all);
  auto const surplus = std::ranges::unique(all);
  all.erase(surplus.begin(), surplus.end());
  all.insert(all.begin(), ends.begin(), ends.end());
  return all;
}

}  // namespace heddle
