"""The gate behind the gate: break a promise in the store, and the contract must notice.

Each mutation changes one SQL statement and names a test of the contract that has to fail with it. What a statement is for can thus be read
off the test that misses it.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import apsw
import pytest

from rapkit.stores.sqlite import statements
from tests.mailbox.contract import OneHandleContract
from tests.stores.sqlite_harness import SqliteHarness

Test = Callable[..., Coroutine[Any, Any, None]]
Contract = OneHandleContract


class Mutation(NamedTuple):
    """`old` becomes `new` in the statements; everything of them becomes `new` if `old` is empty."""

    what: str
    names: str
    old: str
    new: str
    missed_by: Test


NO_ROWS = "SELECT 1 WHERE 0 AND ?1"

MUTATIONS = [
    Mutation(
        "a letter that claims a box though other mail waits",
        "CLAIM_IDLE_BOX",
        "AND ifnull(due_at, ?4 + 1) > ?4",
        "AND ?4",
        Contract.test_a_letter_is_accepted_without_a_claim_if_it_is_not_all_that_is_due,
    ),
    Mutation(
        "a letter that overtakes the mail of a box that failed",
        "CLAIM_IDLE_BOX",
        "AND attempts = 0",
        "",
        Contract.test_a_letter_for_a_box_that_failed_comes_after_the_mail_it_failed_on,
    ),
    Mutation(
        "a letter that claims a box that somebody has",
        "CLAIM_IDLE_BOX",
        "worker IS NULL AND attempts = 0",
        "attempts < 2",
        Contract.test_a_letter_is_accepted_without_a_claim_if_it_is_not_all_that_is_due,
    ),
    Mutation(
        "epochs that begin anew",
        "CREATE_BOX",
        "CAST(?7 * 1000 AS INTEGER)",
        "0",
        Contract.test_a_claim_from_an_earlier_life_of_an_id_is_fenced,
    ),
    Mutation(
        "a stop that spares what is in flight",
        "DROP_LANES",
        "AND dead_at IS NULL",
        "AND dead_at IS NULL AND worker IS NULL",
        Contract.test_posts_of_a_stopped_box_are_deleted_and_those_in_flight_named_and_never_sent_again,
    ),
    Mutation(
        "a sender that takes what others have for its own",
        "HELD",
        "o.epoch = asked.value ->> 1 AND",
        "",
        Contract.test_a_sender_can_see_which_posts_are_still_its_own,
    ),
    Mutation(
        "a sender that takes what waits for its own",
        "HELD",
        "AND o.worker IS NOT NULL",
        "",
        Contract.test_a_sender_can_see_which_posts_are_still_its_own,
    ),
    Mutation(
        "latest posts that queue up",
        "REPLACE_LATEST",
        "",
        NO_ROWS,
        Contract.test_of_what_waits_in_a_lane_of_latest_posts_the_newest_is_left,
    ),
    Mutation(
        "a latest post that is retried after a newer one came",
        "NEWER_IN_LANE",
        "",
        f"{NO_ROWS} AND ?2",
        Contract.test_of_what_waits_in_a_lane_of_latest_posts_the_newest_is_left,
    ),
    Mutation(
        "a latest post that a lost sender leaves to the next one",
        "DROP_REPLACED",
        "",
        "SELECT 1, 2 WHERE 0 AND ?1",
        Contract.test_a_latest_post_in_a_lost_senders_hands_is_not_sent_again_after_a_newer_one,
    ),
    Mutation(
        "a stop that spares the lanes under a box",
        "DROP_LANES_UNDER",
        "",
        "SELECT 1, 2 WHERE 0 AND ?1",
        Contract.test_lanes_under_a_stopped_box_are_deleted_too,
    ),
    Mutation(
        "a stop that spares what is in flight in the lanes under a name",
        "DROP_LANES_UNDER",
        "AND dead_at IS NULL",
        "AND dead_at IS NULL AND worker IS NULL",
        Contract.test_lanes_under_a_box_that_has_ended_are_deleted_by_its_name,
    ),
    Mutation(
        "a stop that reaches the lanes of names that begin like its own",
        "DROP_LANES_UNDER",
        "?1 || '/' AND lane < ?1 || '0'",
        "?1 AND lane < ?1 || 'a'",
        Contract.test_a_name_reaches_no_lane_of_another_name,
    ),
    Mutation(
        "claims that are kept by whoever was cancelled",
        "GIVE_BACK_BOX",
        "",
        f"{NO_ROWS} AND ?2 AND ?3 AND ?4",
        Contract.test_whoever_is_cancelled_while_it_claims_holds_nothing,
    ),
    Mutation(
        "posts that are kept by whoever was cancelled",
        "GIVE_BACK_OUTGOING",
        "",
        f"{NO_ROWS} AND ?2 AND ?3",
        Contract.test_whoever_is_cancelled_while_it_takes_holds_nothing,
    ),
    Mutation(
        "a fence without the epoch",
        "FENCE FORGET_BOX",
        "epoch = ?",
        "? > 0",
        Contract.test_an_earlier_claim_of_the_same_worker_leaves_no_trace,
    ),
    Mutation(
        "a fence without the worker",
        "FENCE FORGET_BOX",
        "worker = ?",
        "? > ''",
        Contract.test_a_claim_that_ended_leaves_no_trace,
    ),
    Mutation(
        "a claim that is not a new turn",
        "CLAIM_BOXES",
        "epoch = epoch + 1,",
        "",
        Contract.test_an_earlier_claim_of_the_same_worker_leaves_no_trace,
    ),
    Mutation(
        "letters that are not remembered",
        "SEE",
        "",
        f"{NO_ROWS} AND ?2 AND ?3",
        Contract.test_a_repeated_letter_is_one_letter,
    ),
    Mutation(
        "finished boxes that are not remembered",
        "CREATE_BOX",
        "key = ''",
        "key = 'x'",
        Contract.test_a_finished_box_is_remembered_for_a_while,
    ),
    Mutation(
        "letters remembered for ever",
        "REMEMBER_MAIL",
        "",
        f"{NO_ROWS} AND ?2",
        Contract.test_everything_remembered_of_a_finished_box_is_swept_in_the_end,
    ),
    Mutation(
        "a lane that does not advance",
        "ADVANCE_LANE",
        "",
        f"{NO_ROWS} AND ?2",
        Contract.test_a_lane_is_first_in_first_out,
    ),
    Mutation(
        "a lane in which all are due",
        "INSERT_OUTGOING",
        "NOT EXISTS (SELECT 1 FROM outbox WHERE lane = ?2 AND dead_at IS NULL)",
        "1",
        Contract.test_a_lane_is_first_in_first_out,
    ),
    Mutation(
        "a lane that forgets who was first",
        "QUEUE_UP",
        "",
        NO_ROWS,
        Contract.test_what_is_sent_again_goes_before_what_came_after_it,
    ),
    Mutation(
        "mail that makes a claimed box due",
        "WAKE_BOX",
        "AND worker IS NULL",
        "",
        Contract.test_mail_for_a_claimed_box_wakes_nobody_for_nothing,
    ),
    Mutation(
        "mail that wakes nobody",
        "WAKE_BOX",
        "",
        f"{NO_ROWS} AND ?2",
        Contract.test_a_letter_that_needs_a_record_is_unwanted_without_it,
    ),
    Mutation(
        "a release that does not look at the mail",
        "RELEASE_CLAIM",
        "WHEN EXISTS (SELECT 1 FROM mail WHERE box = ?1 AND set_aside IS NULL) THEN ?6",
        "WHEN ?6 < 0 THEN NULL",
        Contract.test_mail_that_comes_during_a_claim_makes_the_box_due_when_it_ends,
    ),
    Mutation(
        "a release that does not look at the timers",
        "RELEASE_CLAIM",
        "SELECT at FROM timers WHERE box = ?1 UNION ALL",
        "SELECT NULL AS at UNION ALL",
        Contract.test_a_timer_makes_the_box_due_and_is_handed_out_until_it_is_taken_away,
    ),
    Mutation(
        "a failure that does not wait",
        "RELEASE_CLAIM",
        "WHEN ?5 AND ?7 IS NOT NULL THEN ?7",
        "",
        Contract.test_a_failed_slice_is_not_run_again_before_it_said,
    ),
    Mutation(
        "boxes claimed without a look at the lease",
        "DUE_BOXES",
        "ifnull(w.expires_at, 0)",
        "0",
        Contract.test_a_worker_that_renews_its_lease_is_never_taken_over,
    ),
    Mutation(
        "POSTs taken without a look at the lease",
        "DUE_OUTGOING",
        "ifnull(w.expires_at, 0)",
        "0",
        Contract.test_a_sender_that_renews_its_lease_keeps_its_post,
    ),
    Mutation(
        "a lease that cannot be renewed",
        "RENEW_LEASE",
        "expires_at = excluded.expires_at",
        "expires_at = expires_at",
        Contract.test_a_worker_that_renews_its_lease_is_never_taken_over,
    ),
    Mutation(
        "boxes of a retired worker that nobody looks at",
        "LEAVE_BOXES",
        "worker = ?2",
        "worker = 'x' || ?2",
        Contract.test_what_a_retired_worker_holds_is_free_at_once,
    ),
    Mutation(
        "mail that is not charged",
        "CHARGE_MAIL",
        "",
        NO_ROWS,
        Contract.test_attempts_count_lost_workers,
    ),
    Mutation(
        "boxes that are not charged",
        "CLAIM_BOXES",
        "attempts = attempts + 1",
        "attempts = 1",
        Contract.test_after_two_lost_attempts_mail_is_handed_out_one_by_one,
    ),
    Mutation(
        "a lease that ends when the clock is back where it was",
        "LATE_LEASES",
        "",
        "SELECT 1, 2 WHERE 0 AND ?1",
        Contract.test_a_lost_workers_box_is_taken_over_though_the_clock_was_set_back,
    ),
    Mutation(
        "a lease that ends too late and is put right, but not the boxes that point to it",
        "LEASE_END",
        "",
        "SELECT 0 WHERE ?1",
        Contract.test_a_worker_that_is_lost_long_after_the_clock_was_set_back_is_found,
    ),
    Mutation(
        "mail whose bytes do not count",
        "MAIL_SIZES",
        "length(m.body)",
        "33",
        Contract.test_a_claim_brings_no_more_bytes_of_mail_than_it_asks_for,
    ),
    Mutation(
        "mail that is chosen newest first",
        "MAIL_SIZES",
        "ORDER BY m.seq",
        "ORDER BY m.seq DESC",
        Contract.test_a_claim_brings_no_more_bytes_of_mail_than_it_asks_for,
    ),
    Mutation(
        "mail in any order",
        "READ_MAIL",
        "ORDER BY seq",
        "ORDER BY seq DESC",
        Contract.test_letters_are_handed_out_in_the_order_they_were_accepted,
    ),
    Mutation(
        "mail consumed up to a number",
        "CONSUME_MAIL",
        "seq IN (SELECT value FROM json_each(?))",
        "seq <= (SELECT max(value) FROM json_each(?))",
        Contract.test_mail_that_was_not_consumed_comes_again_and_only_that,
    ),
    Mutation(
        "a settlement without the epoch",
        "DELIVERED RETRY GIVE_UP",
        "AND epoch = ?",
        "AND 0 < ?",
        Contract.test_a_sender_whose_post_was_taken_over_settles_nothing,
    ),
    Mutation(
        "a once POST that stays",
        "DELETE_OUTGOING",
        "",
        NO_ROWS,
        Contract.test_a_once_post_is_gone_before_it_is_handed_out,
    ),
    Mutation(
        "what is unsent while it is in flight and sent again all the same",
        "UNSEND_LANES",
        "AND dead_at IS NULL",
        "AND dead_at IS NULL AND worker IS NULL",
        Contract.test_what_is_in_flight_when_it_is_unsent_is_not_sent_again,
    ),
    Mutation(
        "a repetition that is remembered for ever",
        "SEEN",
        "OR expires_at > ?3",
        "OR ?3",
        Contract.test_it_can_be_asked_whether_a_letter_would_be_a_repetition,
    ),
    Mutation(
        "what is remembered for ever and taken for new",
        "SEEN",
        "expires_at IS NULL OR ",
        "",
        Contract.test_it_can_be_asked_whether_a_letter_would_be_a_repetition,
    ),
    Mutation(
        "a POST that no claim stands for and that is put twice",
        "SEEN",
        "",
        f"{NO_ROWS} AND ?2 AND ?3 UNION ALL SELECT 0",
        Contract.test_a_post_that_no_claim_stands_for_is_put_once_under_its_key,
    ),
    Mutation(
        "a stop that leaves the box to its worker",
        "STOP_BOXES",
        "epoch = epoch + 1, worker = NULL,",
        "",
        Contract.test_a_worker_whose_box_was_stopped_leaves_no_trace,
    ),
    Mutation(
        "a stop of one box that leaves it to its worker",
        "STOP_BOX",
        "epoch = epoch + 1, worker = NULL,",
        "",
        Contract.test_one_box_is_stopped_and_not_its_namesakes,
    ),
    Mutation(
        "a stop of one box that stops its namesakes",
        "STOP_BOX",
        "WHERE id = ?2",
        "WHERE name = (SELECT name FROM boxes WHERE id = ?2)",
        Contract.test_one_box_is_stopped_and_not_its_namesakes,
    ),
    Mutation(
        "a stop that does not outlive its call",
        "CREATE_BOX",
        "'stopped/'",
        "'x'",
        Contract.test_a_box_that_comes_after_its_stop_is_made_stopped,
    ),
    Mutation(
        "a stop of the first kind alone",
        "STOP_BOXES",
        "kind IN (SELECT value FROM json_each(?3))",
        "kind = json_extract(?3, '$[0]')",
        Contract.test_boxes_of_several_kinds_are_stopped_in_one_step,
    ),
    Mutation(
        "a stop of whatever kind",
        "STOP_BOXES",
        "kind IN (SELECT value FROM json_each(?3))",
        "?3 > ''",
        Contract.test_boxes_of_several_kinds_are_stopped_in_one_step,
    ),
    Mutation(
        "letters remembered while the box lives, whatever they say",
        "SEE",
        "VALUES (?, ?, ?)",
        "VALUES (?, ?, NULL + ?)",
        Contract.test_a_letter_can_be_remembered_for_less_than_its_box_lives,
    ),
    Mutation(
        "letters remembered as long as the first of them said",
        "SEE",
        "max(expires_at, excluded.expires_at)",
        "expires_at",
        Contract.test_a_letter_can_be_remembered_for_less_than_its_box_lives,
    ),
    Mutation(
        "letters remembered longer than the id of their box",
        "REMEMBER_MAIL",
        "min(ifnull(expires_at, ?1), ?1)",
        "ifnull(expires_at, ?1)",
        Contract.test_a_forgotten_box_knows_no_letter_longer_than_the_letter_said_or_its_id,
    ),
    Mutation(
        "letters remembered longer than they said, because their box ended",
        "REMEMBER_MAIL",
        "min(ifnull(expires_at, ?1), ?1)",
        "?1",
        Contract.test_a_forgotten_box_knows_no_letter_longer_than_the_letter_said_or_its_id,
    ),
    Mutation(
        "holding on that is never getting on",
        "KEEP_CLAIM",
        "CASE WHEN ?5 THEN attempts ELSE 0 END",
        "attempts + 0 * ?5",
        Contract.test_a_commit_that_holds_on_says_that_the_box_got_on,
    ),
    Mutation(
        "holding on that is always getting on",
        "KEEP_CLAIM",
        "CASE WHEN ?5 THEN attempts ELSE 0 END",
        "0 * ?5",
        Contract.test_holding_on_need_not_be_getting_on,
    ),
    Mutation(
        "facts about boxes that nobody made",
        "PUT_FACT",
        "WHERE EXISTS (SELECT 1 FROM boxes WHERE id = ?1 AND status <> 'closed')",
        "WHERE 1",
        Contract.test_facts_about_boxes_that_are_gone_or_closed_do_not_spoil_a_commit,
    ),
    Mutation(
        "facts about closed boxes",
        "PUT_FACT",
        "AND status <> 'closed'",
        "",
        Contract.test_facts_about_boxes_that_are_gone_or_closed_do_not_spoil_a_commit,
    ),
    Mutation(
        "facts dropped beside closed boxes",
        "DROP_FACT",
        "AND status <> 'closed'",
        "",
        Contract.test_facts_about_boxes_that_are_gone_or_closed_do_not_spoil_a_commit,
    ),
    Mutation(
        "facts that do not replace",
        "PUT_FACT",
        "DO UPDATE SET body = excluded.body",
        "DO NOTHING",
        Contract.test_a_commit_writes_replaces_and_drops_records_of_other_boxes,
    ),
    Mutation(
        "facts dropped by their kind alone",
        "DROP_FACT",
        "AND key = ?3",
        "AND ?3 > ''",
        Contract.test_a_commit_writes_replaces_and_drops_records_of_other_boxes,
    ),
    Mutation(
        "a note that does not look at what stands there",
        "BOX_FOR_NOTE",
        "r.body",
        "NULL",
        Contract.test_of_many_that_expect_the_same_one_is_written,
    ),
    Mutation(
        "a note that looks at the wrong record",
        "BOX_FOR_NOTE",
        "AND r.key = ?3",
        "AND r.key > ?3",
        Contract.test_a_note_is_written_only_if_what_it_expects_stands_there,
    ),
    Mutation(
        "a note that revives the dead",
        "BOX_FOR_NOTE",
        "key = ''",
        "key = 'x'",
        Contract.test_nothing_is_noted_beside_a_box_that_ended_while_it_is_remembered,
    ),
    Mutation(
        "a note that makes its box due",
        "CREATE_BOX",
        "?8 IS NOT NULL, ?9,",
        "?8 IS NOT NULL, ifnull(?9, ?7),",
        Contract.test_a_note_makes_its_box_if_there_is_none_and_nothing_is_due,
    ),
    Mutation(
        "a count of what was given up",
        "WAITING",
        "AND dead_at IS NULL",
        "",
        Contract.test_what_waits_in_a_lane_is_counted_until_it_is_delivered_or_given_up,
    ),
    Mutation(
        "a count without what is in flight",
        "WAITING",
        "AND dead_at IS NULL",
        "AND dead_at IS NULL AND worker IS NULL",
        Contract.test_what_waits_in_a_lane_is_counted_until_it_is_delivered_or_given_up,
    ),
    Mutation(
        "timers handed out once",
        "DUE_TIMERS",
        "at <= ?",
        "at <= ? AND (SELECT attempts FROM boxes WHERE id = box) = 1",
        Contract.test_a_timer_that_is_due_is_handed_out_until_it_is_moved,
    ),
    Mutation(
        "a timer that cannot be moved",
        "SET_TIMER",
        "DO UPDATE SET at = excluded.at",
        "DO NOTHING",
        Contract.test_a_timer_that_is_due_is_handed_out_until_it_is_moved,
    ),
    Mutation(
        "a stop that counts as attempts that were lost",
        "STOP_BOXES",
        "SET stopped = 1,",
        "SET stopped = 1, attempts = attempts + 2,",
        Contract.test_a_stopped_box_brings_its_mail_and_its_due_timers_like_any_other,
    ),
    Mutation(
        "boxes that are busy only while somebody has them",
        "BOX",
        "OR ifnull(due_at <= ?1, 0)",
        "OR ?1 < 0",
        Contract.test_a_box_is_busy_while_it_is_due_or_claimed,
    ),
    Mutation(
        "boxes that are busy only while they are due",
        "BOX",
        "worker IS NOT NULL OR",
        "",
        Contract.test_a_box_is_busy_while_it_is_due_or_claimed,
    ),
    Mutation(
        "boxes that are busy long before their time",
        "BOX",
        "due_at <= ?1",
        "due_at <= ?1 + 1e9",
        Contract.test_a_box_that_waits_for_a_time_is_busy_from_then_on,
    ),
    Mutation(
        "a list of what is not to be listed",
        "BOXES",
        "AND root IS NOT NULL",
        "",
        Contract.test_boxes_of_a_kind_that_have_a_root_are_listed_the_last_first,
    ),
    Mutation(
        "children that are not to be listed",
        "BOXES_OF_PARENT",
        "AND root IS NOT NULL",
        "",
        Contract.test_a_list_of_boxes_can_be_filtered_by_parent_and_status,
    ),
    Mutation(
        "children of whatever kind",
        "BOXES_OF_PARENT",
        "kind = ?2",
        "?2 > ''",
        Contract.test_a_list_of_boxes_can_be_filtered_by_parent_and_status,
    ),
    Mutation(
        "children of whatever status",
        "BOXES_OF_PARENT",
        "(?5 IS NULL OR status = ?5)",
        "(?5 IS NULL OR ?5 > '')",
        Contract.test_a_list_of_boxes_can_be_filtered_by_parent_and_status,
    ),
    Mutation(
        "a list in the order of time",
        "BOXES BOXES_BY_STATUS BOXES_OF_PARENT",
        "ORDER BY id DESC",
        "ORDER BY id",
        Contract.test_a_list_of_boxes_comes_in_pages,
    ),
    Mutation(
        "a page that begins with the end of the last",
        "BOXES BOXES_BY_STATUS BOXES_OF_PARENT",
        "id < ?3",
        "id <= ?3",
        Contract.test_a_page_goes_on_where_the_last_ended_whatever_came_and_went_meanwhile,
    ),
    Mutation(
        "a status that stays",
        "KEEP_CLAIM_AND_SET_STATUS",
        "SET status = ?3,",
        "SET status = ifnull(status, ?3),",
        Contract.test_a_list_follows_the_status,
    ),
    Mutation(
        "a status that stays when the claim ends",
        "RELEASE_CLAIM_AND_SET_STATUS",
        "SET status = ?3,",
        "SET status = ifnull(status, ?3),",
        Contract.test_a_closed_box_takes_no_letters_but_knows_those_it_had,
    ),
    Mutation(
        "a journal read from its beginning",
        "RECENT",
        "ORDER BY seq DESC",
        "ORDER BY seq",
        Contract.test_the_end_of_a_journal_is_read_from_the_end,
    ),
    Mutation(
        "a journal read on from an entry and not from before it",
        "RECENT",
        "seq < ifnull",
        "seq <= ifnull",
        Contract.test_the_end_of_a_journal_is_read_from_the_end,
    ),
    Mutation(
        "a sweep of everything at once",
        "SWEEP_SEEN",
        "LIMIT 500",
        "",
        Contract.test_a_sweep_does_a_little_at_a_time_and_comes_to_an_end,
    ),
    Mutation(
        "a sweep of what lives",
        "SWEEP_DEAD_LETTERS",
        "dead_at <= ?",
        "dead_at <= ? + 1e9",
        Contract.test_there_is_nothing_to_sweep_in_a_store_that_lives,
    ),
    Mutation(
        "a letter that loses its trace",
        "READ_MAIL",
        "ifnull(traceparent, '')",
        "''",
        Contract.test_a_letter_brings_the_trace_it_belongs_to,
    ),
    Mutation(
        "a record that loses its trace",
        "RECORDS",
        "ifnull(traceparent, '')",
        "''",
        Contract.test_a_letter_without_a_trace_continues_that_of_the_record_it_needs,
    ),
    Mutation(
        "a letter that does not continue the trace of its call",
        "BOX_FOR_MAIL",
        "r.traceparent",
        "NULL",
        Contract.test_a_letter_without_a_trace_continues_that_of_the_record_it_needs,
    ),
    Mutation(
        "a letter that continues the trace of another call",
        "BOX_FOR_MAIL",
        "AND r.key = ?4",
        "AND ?4",
        Contract.test_a_letter_without_a_trace_continues_that_of_the_record_it_needs,
    ),
    Mutation(
        "a record that keeps the trace it began with",
        "PUT_RECORD",
        ", traceparent = excluded.traceparent",
        "",
        Contract.test_a_record_that_is_written_anew_has_the_trace_of_whoever_wrote_it_last,
    ),
    Mutation(
        "a fact that keeps the trace of the record it replaces",
        "PUT_FACT",
        ", traceparent = NULL",
        "",
        Contract.test_a_record_that_is_written_anew_has_the_trace_of_whoever_wrote_it_last,
    ),
    Mutation(
        "a box that loses its trace when the claim is kept",
        "KEEP_CLAIM",
        "ifnull(?6, traceparent)",
        "?6 || NULL",
        Contract.test_a_box_keeps_the_trace_of_its_last_commit_for_a_slice_without_mail,
    ),
    Mutation(
        "a box that loses its trace when the claim ends",
        "RELEASE_CLAIM",
        "ifnull(?8, traceparent)",
        "?8",
        Contract.test_a_box_keeps_the_trace_of_its_last_commit_for_a_slice_without_mail,
    ),
    Mutation(
        "a box that never changes its trace",
        "RELEASE_CLAIM",
        "ifnull(?8, traceparent)",
        "ifnull(traceparent, ?8)",
        Contract.test_a_box_keeps_the_trace_of_its_last_commit_for_a_slice_without_mail,
    ),
    Mutation(
        "a claim without the trace of the box",
        "CLAIM_BOXES",
        "ifnull(traceparent, '')",
        "''",
        Contract.test_a_box_keeps_the_trace_of_its_last_commit_for_a_slice_without_mail,
    ),
    Mutation(
        "a claim by a letter without the trace of the box",
        "CLAIM_IDLE_BOX",
        "ifnull(traceparent, '')",
        "''",
        Contract.test_a_box_that_a_letter_claims_brings_the_trace_of_its_last_commit,
    ),
    Mutation(
        "letters set aside that count as unread",
        "LOAD_OF_MAIL",
        "WHERE set_aside IS NULL",
        "",
        Contract.test_letters_are_unread_until_a_commit_consumes_them_or_sets_them_aside,
    ),
    Mutation(
        "the age of the newest letter",
        "LOAD_OF_MAIL",
        "min(accepted_at)",
        "max(accepted_at)",
        Contract.test_letters_are_unread_until_a_commit_consumes_them_or_sets_them_aside,
    ),
    Mutation(
        "boxes that count before their time",
        "LOAD_OF_BOXES",
        "AND due_at <= ?2",
        "AND due_at IS NOT NULL AND ?2",
        Contract.test_nothing_waits_in_an_empty_store_nor_in_one_that_is_at_rest,
    ),
    Mutation(
        "boxes of whatever kind that count",
        "LOAD_OF_BOXES",
        "kind = ?1",
        "?1 > ''",
        Contract.test_boxes_wait_until_a_worker_claims_them,
    ),
    Mutation(
        "dead letters that count as waiting",
        "LOAD_OF_OUTBOX",
        "WHERE dead_at IS NULL",
        "",
        Contract.test_posts_wait_until_they_are_delivered_or_given_up,
    ),
    Mutation(
        "the age of the newest POST",
        "LOAD_OF_OUTBOX",
        "min(created_at)",
        "max(created_at)",
        Contract.test_posts_wait_until_they_are_delivered_or_given_up,
    ),
    Mutation(
        "POSTs that count as dead",
        "LOAD_OF_DEAD",
        "WHERE dead_at IS NOT NULL",
        "",
        Contract.test_posts_wait_until_they_are_delivered_or_given_up,
    ),
    Mutation(
        "boxes that are due though their worker lives",
        "DUE_BOX_FREE_AT",
        "ifnull(w.expires_at, 0)",
        "0",
        Contract.test_what_a_worker_holds_is_due_when_its_lease_ends_and_not_before,
    ),
    Mutation(
        "POSTs that are due though their sender lives",
        "DUE_OUTGOING_FREE_AT",
        "ifnull(w.expires_at, 0)",
        "0",
        Contract.test_what_a_worker_holds_is_due_when_its_lease_ends_and_not_before,
    ),
    Mutation(
        "due boxes that one that is held hides",
        "DUE_BOX_FREE_AT",
        "b.due_at <= ?1",
        "b.due_at <= ?1 LIMIT 1",
        Contract.test_what_a_worker_holds_hides_nothing_that_is_due,
    ),
    Mutation(
        "due POSTs that one that is held hides",
        "DUE_OUTGOING_FREE_AT",
        "o.due_at <= ?1",
        "o.due_at <= ?1 LIMIT 1",
        Contract.test_what_a_worker_holds_hides_nothing_that_is_due,
    ),
    Mutation(
        "timers of other kinds",
        "NEXT_BOX",
        "kind = ?2",
        "?2 > ''",
        Contract.test_next_due_is_nothing_now_or_later,
    ),
]


PARAMETERS = {"outcome": "delivered", "parent": "t1", "status": "open", "expected": ["t3"]}
"""What the tests that are parametrized are called with."""


@pytest.fixture
async def harness() -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness()
    yield harness
    await harness.close()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
async def test_the_contract_misses(mutation: Mutation, harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in mutation.names.split():
        statement: str = getattr(statements, name)
        assert mutation.old in statement
        mutated = statement.replace(mutation.old, mutation.new) if mutation.old else mutation.new
        monkeypatch.setattr(statements, name, mutated)

    caught = await failure_of(mutation.missed_by, harness)

    assert caught is not None, "nobody noticed"
    assert not isinstance(caught.__cause__, apsw.Error), "the mutation is not even SQL"


async def failure_of(test: Test, harness: SqliteHarness) -> BaseException | None:
    takes = test.__code__.co_varnames[2 : test.__code__.co_argcount]
    try:
        await test(Contract(), harness, **{name: PARAMETERS[name] for name in takes})
    except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - whatever it is, the test has failed
        return failure
    return None
