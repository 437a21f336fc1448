#include <algorithm>
#include <heddle/core/pack.hpp>
#include <numeric>

namespace heddle {

namespace {

using Integers = std::vector<std::int32_t>;

Tensor to_tensor(Integers const& integers) {
  return from_host<std::int32_t>(integers, {static_cast<std::int64_t>(integers.size())});
}

Integers sorted_rows(Integers const& ids) {
  Integers order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
    return ids[static_cast<std::size_t>(left)] < ids[static_cast<std::size_t>(right)];
  });
  return order;
}

TokenIds make_ids(Integers const& ids) {
  return {to_tensor(ids), to_tensor(sorted_rows(ids))};
}

/// Collects one side's rows sequence by sequence.
class RowsBuilder {
 public:
  void add(std::int32_t sample, std::size_t length) {
    begin_.push_back(static_cast<std::int32_t>(sample_.size()));
    length_.push_back(static_cast<std::int32_t>(length));
    for (std::size_t position = 0; position < length; ++position) {
      sample_.push_back(sample);
      position_.push_back(static_cast<std::int32_t>(position));
    }
  }

  TokenRows build() const {
    TokenRows rows;
    rows.sequences.begin = to_tensor(begin_);
    rows.sequences.length = to_tensor(length_);
    rows.sequences.count = static_cast<std::int64_t>(begin_.size());
    rows.sequences.max_length = length_.empty() ? 0 : *std::max_element(length_.begin(), length_.end());
    rows.sample = to_tensor(sample_);
    rows.position = to_tensor(position_);
    rows.tokens = static_cast<std::int64_t>(sample_.size());
    return rows;
  }

 private:
  Integers begin_, length_, sample_, position_;
};

}  // namespace

Pack make_pack(std::span<SentencePair const> pairs, std::int32_t begin_id, std::int32_t source_end_id,
               std::int32_t end_id) {
  RowsBuilder source_rows;
  RowsBuilder target_rows;
  Integers source;
  Integers target_input;
  Integers target_output;
  for (SentencePair const& pair : pairs) {
    source_rows.add(pair.sample, pair.source.size() + 1);
    target_rows.add(pair.sample, pair.target.size() + 1);
    source.insert(source.end(), pair.source.begin(), pair.source.end());
    source.push_back(source_end_id);
    target_input.push_back(begin_id);
    target_input.insert(target_input.end(), pair.target.begin(), pair.target.end());
    target_output.insert(target_output.end(), pair.target.begin(), pair.target.end());
    target_output.push_back(end_id);
  }
  return {source_rows.build(),
          target_rows.build(),
          make_ids(source),
          make_ids(target_input),
          {to_tensor(target_output), Tensor()}};
}

Pack make_source_pack(std::span<std::vector<std::int32_t> const> sentences, std::int32_t end_id) {
  RowsBuilder rows;
  Integers source;
  std::int32_t sample = 0;
  for (auto const& sentence : sentences) {
    rows.add(sample++, sentence.size() + 1);
    source.insert(source.end(), sentence.begin(), sentence.end());
    source.push_back(end_id);
  }
  return {rows.build(), {}, make_ids(source), {}, {}};
}

}  // namespace heddle
