%% The callbacks of the supervisors in run.escript. Each child reports that it begins (+), that it fails to start (?), and
%% that it is stopped (-).
-module(tree).
-export([init/1, begin_child/4, begin_branch/3]).

init(Spec) -> {ok, Spec}.

begin_branch(B, Log, Family) ->
    {ok, Pid} = supervisor:start_link(tree, Family),
    Log ! {is, B, Pid},
    {ok, Pid}.

begin_child(P, Log, Fails, End) ->
    process_flag(trap_exit, true),
    [Parent | _] = get('$ancestors'),
    Start = integer_to_list(ets:update_counter(starts, P, 1, {P, 0})),
    case Fails of
        "all" -> fail(P, Log);
        Start -> fail(P, Log);
        _ -> ok
    end,
    Log ! {log, "+" ++ P},
    Log ! {is, P, self()},
    proc_lib:init_ack({ok, self()}),
    loop(P, Log, Parent, End).

fail(P, Log) ->
    Log ! {log, "?" ++ P},
    exit(not_today).

loop(P, Log, Parent, End) ->
    receive
        {'EXIT', Parent, Reason} ->
            Log ! {log, "-" ++ P},
            case End of
                "stubborn" -> receive never -> ok end;
                _ -> exit(Reason)
            end;
        {'EXIT', _, shutdown} -> exit(shutdown);
        {ctl, _, {stop, Reason}} -> exit(Reason)
    end.
