#include "step_lists.hpp"

#include <algorithm>
#include <heddle/core/base/index_range.hpp>

namespace heddle {

StepLists::StepLists(std::list<Sentence> const& sentences) : first_(sentences.front().is_new()) {
  for (Sentence const& sentence : sentences) {
    for (LiveHypothesis const& hypothesis : sentence.live) {
      add(sentence, hypothesis);
    }
    for (std::int64_t row = 0; first_ && row < sentence.source_rows(); ++row) {
      source_written_.add(sentence.first_source_row + row);
    }
  }
}

void StepLists::add(Sentence const& sentence, LiveHypothesis const& hypothesis) {
  std::int64_t const newest = sentence.start_end() + sentence.length();  // its position
  std::int64_t const place = sentence.first_token_row + hypothesis.place * sentence.capacity;
  std::int64_t const parent = sentence.first_token_row + hypothesis.parent * sentence.capacity;
  query_begin_.add(std::ssize(id_.host));
  for (std::int64_t at = first_ ? 0 : newest; at <= newest; ++at) {
    id_.add(first_ ? sentence.start[static_cast<std::size_t>(at)] : hypothesis.tokens.back());
    position_.add(at);
    written_.add(place + at);
  }
  newest_.add(std::ssize(id_.host) - 1);
  query_length_.add(std::ssize(id_.host) - query_begin_.host.back());
  key_begin_.add(place);
  key_length_.add(newest + 1);
  source_begin_.add(sentence.first_source_row);
  source_length_.add(sentence.source_rows());
  state_.add(sentence.first_state + hypothesis.place);
  previous_state_.add(sentence.first_state + hypothesis.parent);
  for (std::int64_t at = 0; place != parent && at < newest; ++at) {
    copied_.add(parent + at);
    copies_.add(place + at);
  }
}

std::array<StepLists::List*, 15> StepLists::all() {
  return {&id_,           &position_,  &written_,        &newest_,       &query_begin_,
          &query_length_, &key_begin_, &key_length_,     &source_begin_, &source_length_,
          &copied_,       &copies_,    &source_written_, &state_,        &previous_state_};
}

Sequences StepLists::sequences(List const& begin, List const& length) const {
  return {begin.uploaded, length.uploaded, std::ssize(begin.host), *std::ranges::max_element(length.host)};
}

StepUpload::Uploaded StepUpload::upload(StepLists& lists, Rows const& rows) {
  auto const aligned = [](auto const& list) { return rounded_up(std::ssize(list->host), line_elements); };
  std::int64_t elements = 0;
  for (auto* const list : lists.all()) {
    elements += aligned(list);
  }
  if (memory_.tensor().size() < elements) {
    memory_ = UploadedTensor(DType::int32, {2 * elements});
  }
  std::int64_t used = 0;
  for (auto* const list : lists.all()) {
    std::int64_t const count = std::ssize(list->host);
    if (count > 0) {
      copy_from_host(memory_.host().rows(used, count), list->host.data());
      list->uploaded = memory_.tensor().rows(used, count);
    }
    used += aligned(list);
  }
  memory_.upload(used);
  Sequences const queries = lists.sequences(lists.query_begin_, lists.query_length_);
  auto const tokens = std::ssize(lists.id_.host);
  return {{{lists.id_.uploaded, {}}, {queries, {}, lists.position_.uploaded, tokens}, lists.newest_.uploaded},
          {.first = lists.first_,
           .queries = queries,
           .keys = lists.sequences(lists.key_begin_, lists.key_length_),
           .encoder_output = lists.sequences(lists.source_begin_, lists.source_length_),
           .position = lists.position_.uploaded,
           .tokens = {rows.tokens, lists.written_.uploaded},
           .copied = lists.copied_.uploaded,
           .copies = lists.copies_.uploaded,
           .encoder_rows = {rows.sources, lists.source_written_.uploaded},
           .states = {rows.states, lists.state_.uploaded},
           .previous_state = lists.previous_state_.uploaded}};
}

}  // namespace heddle
